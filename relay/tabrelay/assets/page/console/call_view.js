/**
 * View of one call in the drawer: summary, actions, request, result, messages, waterfall, headers.
 *
 * It reads the details once, and again when the row has changed. Of a call that is only in the call log there are no details.
 * Actions come from its owner: it offers buttons and sends nothing by itself.
 */

import { duration, element } from "../element.js";
import { timeText } from "./call_lines.js";
import { contentView } from "./content_view.js";
import { jsonTree } from "./json_tree.js";
import { bytesText, clientOf, isOpen, lookOf, outcomeOf, tabOf, titleOf } from "./rows.js";
import { waterfall } from "./waterfall.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./relay_api.js").Detail} Detail
 *
 * @typedef {object} CallSource
 * @property {(id: string, signal: AbortSignal) => Promise<Detail>} detail
 * @property {EventTarget} changes dispatches "change" when rows have changed
 * @property {(id: string) => Row | undefined} find
 * @property {(group: string) => Row[]} rounds rows of one group, the oldest first
 * @property {(row: Row) => void} open
 * @property {(detail: Detail, place: HTMLElement) => HTMLElement[]} actions buttons; `place` is for what they show
 */

const LOGGED = "This call was not captured: it ran before the console was open, so only its line of the call log is known. A relay that is started with --inspect captures all calls.";

/**
 * @param {HTMLElement} place
 * @param {string} id
 * @param {CallSource} source
 * @param {AbortSignal} signal
 */
export function callView(place, id, source, signal) {
  let drawn = "";
  let isReading = false;
  /** What is open and scrolled stays so when the call changes. @type {Map<string, boolean>} */
  const open = new Map([["result", true], ["request", true], ["timing", true], ["messages", true]]);
  const output = element("div", { class: "stack", hidden: true });
  const draw = (/** @type {Detail} */ detail) => {
    place.replaceChildren(
      summary(detail.row, helpOf(detail)),
      ...[rounds(detail.row, source)].filter((each) => each !== null),
      element("div", { class: "row actions", role: "group", "aria-label": "Actions" }, ...source.actions(detail, output)),
      output,
      ...sections(detail).map(([key, title, ...content]) => section(key, title, open, content)),
    );
  };
  const update = async () => {
    const row = source.find(id);
    const mark = row ? `${row.state} ${row.ms} ${row.rounds} ${row.held} ${row.approval} ${row.peer} ${source.rounds(row.group).length}` : "gone";
    if (isReading || (mark === drawn && !(row && isOpen(row)))) return;
    if (row?.is_log) {
      drawn = mark;
      place.replaceChildren(summary(row), element("p", { class: "notice" }, LOGGED));
      return;
    }
    isReading = true;
    try {
      const detail = await source.detail(id, signal);
      const next = `${mark} ${detail.notices.length} ${detail.events.length}`;
      if (!signal.aborted && next !== drawn) draw(detail);
      drawn = row && isOpen(row) ? next : mark;
    } catch (error) {
      if (signal.aborted || drawn) return;
      drawn = mark;
      const text = error instanceof Error ? error.message : String(error);
      place.replaceChildren(...(row ? [summary(row)] : []), element("p", { class: "notice is-warn", role: "alert" }, text));
    } finally {
      isReading = false;
    }
  };
  source.changes.addEventListener("change", () => void update(), { signal });
  // A call that runs may have got progress and messages, which are no change of its row.
  const timer = setInterval(() => !document.hidden && void update(), 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  void update();
}

/** @param {Row} row @param {string} [help] the code of its error in the reference */
function summary(row, help) {
  const { client, started, ms, bytes_in, bytes_out } = row;
  const version = client.version ? ` ${client.version}` : "";
  const size = `${bytesText(bytes_in)} in, ${bytesText(bytes_out)} out`;
  const tokens = row.tokens_in === null ? "" : ` · about ${row.tokens_in} + ${row.tokens_out ?? 0} tokens`;
  /** @type {[string, string | Node | null | undefined][]} */
  const entries = [
    ["Status", element("span", { class: `badge ${lookOf(row)}` }, outcomeOf(row).replaceAll("_", " "))],
    ["Error", row.error?.message],
    ["Code", row.code === null ? null : String(row.code)],
    ["Help", help ? element("a", { href: `/-/docs/reference/errors/#${help.toLowerCase()}` }, help) : null],
    ["Delivered", row.delivered],
    ["Server", row.server],
    ["Method", row.method === titleOf(row) ? null : row.method],
    ["Client", `${clientOf(row)}${version}${row.principal && row.principal !== client.name ? ` (${row.principal})` : ""}`],
    ["Era", row.era],
    ["Went to", row.peer],
    ["Tab", tabOf(row) === row.peer ? null : `${tabOf(row)}${row.tab && row.tab_title ? ` (${row.tab})` : ""}`],
    ["Approval", row.approval],
    ["Started", timeText(started)],
    ["Duration", ms === null ? "still running" : duration(ms)],
    ["Size", row.is_log ? null : size + tokens],
    ["Replays", row.replays ? String(row.replays) : null],
    ["Relay", row.relay],
    ["Trace", row.trace],
    ["Id", row.is_log ? null : row.id],
  ];
  const shown = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    { class: "facts", "data-testid": "call-facts" },
    ...shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value ?? null))),
  );
}

/** @param {Detail} detail @returns {string | undefined} */
function helpOf({ response }) {
  const help = response?.error?.data?.help ?? response?.result?._meta?.["tabrelay/error"]?.help;
  return /^TR\d{3}$/.test(help) ? help : undefined;
}

/** @param {Row} row @param {CallSource} source */
function rounds(row, source) {
  const all = source.rounds(row.group);
  if (all.length < 2) return null;
  const items = all.map((each, index) => {
    const button = element("button", { type: "button", class: "button is-small", "aria-current": each.id === row.id && "true" }, `Round ${index + 1}: ${outcomeOf(each).replaceAll("_", " ")}`);
    button.addEventListener("click", () => source.open(each));
    return element("li", {}, button);
  });
  return element("ol", { class: "row rounds", "aria-label": "Rounds of this call" }, ...items);
}

/** @typedef {[key: string, title: string, ...content: (HTMLElement | null)[]]} Section */

/** @param {Detail} detail @returns {Section[]} */
function sections(detail) {
  const { request, response, notices, truncated, dropped } = detail;
  const cut = (/** @type {"request" | "response"} */ which) =>
    truncated && truncated[which] ? element("p", { class: "hint" }, "It was too long to be captured whole: this is its beginning.") : null;
  const result = response?.result;
  /** @type {Section[]} */
  const found = [
    ["result", response?.error ? "Error" : "Result", cut("response"), result ? contentView(result) : null, response ? jsonTree(result ?? response.error ?? response.text ?? response, "the result") : element("p", { class: "hint" }, "None yet.")],
    ["request", "Request", cut("request"), jsonTree(request.params ?? {}, "the request")],
  ];
  if (notices.length) found.push(["messages", `Messages (${notices.length})`, messageList(detail)]);
  if (dropped) found[0]?.push(element("p", { class: "hint" }, `${dropped} messages or events were not kept.`));
  found.push(["timing", "Waterfall", waterfall(detail)]);
  const headers = Object.entries(request.headers ?? {});
  if (headers.length) found.push(["headers", `Headers (${headers.length})`, headerTable(headers)]);
  return found;
}

/**
 * @param {string} key
 * @param {string} title
 * @param {Map<string, boolean>} open
 * @param {(HTMLElement | null)[]} content
 */
function section(key, title, open, content) {
  const node = element("details", { class: "part", "data-part": key }, element("summary", {}, element("h3", {}, title)), ...content);
  node.open = open.get(key) ?? false;
  node.addEventListener("toggle", () => open.set(key, node.open));
  return node;
}

/** @param {Detail} detail */
function messageList({ notices, row }) {
  const items = notices.map(({ at, method = "", params = {}, text }) => {
    const what = method.replace("notifications/", "");
    const said = method.endsWith("/progress") ? progressText(params) : method.endsWith("/message") ? `${params.level ?? ""} ${textOf(params.data)}` : (text ?? textOf(params));
    return element("li", { "data-method": method }, element("time", { title: timeText(at) }, `+${duration(Math.max(0, at - row.started))}`), element("span", { class: "badge" }, what), element("span", { class: "said" }, said));
  });
  return element("ol", { class: "events" }, ...items);
}

/** @param {Record<string, any>} params */
function progressText({ progress, total, message }) {
  const part = total ? `${progress} of ${total}` : String(progress);
  return message ? `${part}: ${message}` : part;
}

/** @param {unknown} value */
function textOf(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length > 2000 ? `${text.slice(0, 2000)}…` : text;
}

/** @param {[string, string][]} headers */
function headerTable(headers) {
  const rows = headers.map(([name, value]) => element("tr", {}, element("th", { scope: "row", class: "mono" }, name), element("td", { class: "mono" }, value)));
  return element("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Headers" }, element("table", {}, element("tbody", {}, ...rows)));
}
