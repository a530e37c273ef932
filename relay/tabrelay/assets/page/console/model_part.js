/**
 * What a model sees of a server: the tool list of each era, tokens of each tool, lint, and the difference of two lists.
 *
 * The list of the present version is read by a call of the console. Lists of other eras are those that clients have received while
 * the console was open: the relay translates for each client, and only its answers are shown.
 */

import { element } from "../element.js";
import { TOOLS_LIST } from "../mcp_methods.js";
import { diffTools } from "./diff.js";
import { diffView } from "./diff_view.js";
import { jsonTree } from "./json_tree.js";
import { readDetails } from "./relay_api.js";
import { tokensOf } from "./token_estimate.js";
import { lintTools } from "./tool_lint.js";

/**
 * @typedef {import("./tool_list.js").Tool} Tool
 * @typedef {{ label: string, tools: Tool[] }} SeenList
 *
 * @param {import("./server_texts.js").Server} server
 * @param {import("./server_parts.js").PartContext} context
 */
export function modelPart(server, context) {
  const place = element("div", { class: "stack", "data-testid": "model" }, element("p", { class: "hint", role: "status" }, "Reading."));
  const load = async () => {
    try {
      drawLists(place, await seenLists(server.name, context), () => void load());
    } catch (error) {
      place.replaceChildren(element("p", { class: "notice is-warn" }, error instanceof Error ? error.message : String(error)));
    }
  };
  void load();
  return place;
}

/**
 * @param {string} server
 * @param {import("./server_parts.js").PartContext} context
 * @returns {Promise<SeenList[]>}
 */
async function seenLists(server, { runner, store }) {
  const own = { label: "2026-07-28, now", tools: /** @type {Tool[]} */ (await runner.list(server, "tools")) };
  /** The last list of each client and era. @type {Map<string, import("./rows.js").Row>} */
  const last = new Map();
  for (const row of store.rows) {
    if (row.server === server && row.method === TOOLS_LIST && row.state === "done" && row.by !== "console" && !row.is_log) last.set(`${row.era ?? "unknown"}, ${row.client.name ?? "client"}`, row);
  }
  const rows = [...last.entries()];
  const details = await readDetails(rows.map(([, { id }]) => id)).catch(() => []);
  const others = rows.flatMap(([label, { id }]) => {
    const tools = details.find(({ row }) => row.id === id)?.response?.result?.tools;
    return Array.isArray(tools) ? [{ label, tools }] : [];
  });
  return [own, ...others];
}

/** @param {HTMLElement} place @param {SeenList[]} lists @param {() => void} again */
function drawLists(place, lists, again) {
  const options = () => lists.map(({ label }, index) => element("option", { value: index }, label));
  const shown = element("select", {}, ...options());
  const other = element("select", {}, element("option", { value: "" }, "(none)"), ...options());
  const refresh = element("button", { type: "button", class: "button is-small" }, "Read again");
  const body = element("div", { class: "stack" });
  const draw = () => {
    const list = lists[Number(shown.value)];
    const compared = other.value === "" ? undefined : lists[Number(other.value)];
    if (list) body.replaceChildren(...(compared ? differences(compared, list) : contents(list)));
  };
  shown.addEventListener("change", draw);
  other.addEventListener("change", draw);
  refresh.addEventListener("click", again);
  place.replaceChildren(
    element("div", { class: "row" }, element("label", { class: "field" }, element("span", {}, "List"), shown), element("label", { class: "field" }, element("span", {}, "Compare with"), other), refresh),
    body,
  );
  draw();
}

/** @param {SeenList} list @returns {HTMLElement[]} */
function contents({ tools }) {
  const total = tools.reduce((sum, tool) => sum + tokensOf(tool), 0);
  const findings = lintTools(tools);
  const sorted = [...tools].sort((a, b) => tokensOf(b) - tokensOf(a));
  const rows = sorted.map((tool) => element("tr", { "data-tool": tool.name }, element("th", { scope: "row", class: "mono" }, tool.name), element("td", { class: "number" }, String(tokensOf(tool))), element("td", { class: "number" }, total ? `${Math.round((tokensOf(tool) / total) * 100)} %` : "")));
  const head = element("tr", {}, element("th", { scope: "col" }, "Tool"), element("th", { scope: "col", class: "number" }, "Tokens"), element("th", { scope: "col", class: "number" }, "Share"));
  const lint = findings.map(({ tool, rule, text }) => element("li", { "data-rule": rule, "data-tool": tool }, tool ? element("span", { class: "mono" }, `${tool}: `) : null, text));
  return [
    element("p", {}, `${tools.length} ${tools.length === 1 ? "tool" : "tools"}, about ${total} tokens in every request of a model (four characters each).`),
    element("h3", {}, findings.length ? `${findings.length} ${findings.length === 1 ? "hint" : "hints"}` : "No hints"),
    element("ul", { class: "lint", "data-testid": "lint" }, ...lint),
    element("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Tokens of each tool" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))),
    jsonTree(tools, "the tool list"),
  ];
}

/** @param {SeenList} before @param {SeenList} after @returns {HTMLElement[]} */
function differences(before, after) {
  const found = diffTools(before.tools, after.tools);
  if (!found.length) return [element("p", { class: "hint" }, "The lists are equal.")];
  return found.map(({ name, kind, lines }) => element("details", { open: true }, element("summary", {}, `${name}: ${kind}`), diffView(lines, `Difference of ${name}`)));
}
