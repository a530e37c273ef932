/**
 * Waterfall of a call: one bar for each span, from the client over relay, link, worker and tab and back, and what happened to it.
 *
 * The spans are the relay's and the browser's own measurements, in order, and add up to the total. Without spans there is one bar
 * for the whole call. It is a table, so that screen readers have the numbers; bars are positioned by the style object, which the
 * page's policy allows.
 */

import { duration, element } from "../element.js";
import { timeText } from "./call_lines.js";

/**
 * @typedef {import("./relay_api.js").Detail} Detail
 * @typedef {import("./relay_api.js").Span} Span
 */

/** What each span means. @type {Record<string, string>} */
const NAMES = {
  receive: "Request arrives",
  admit: "Admission",
  wait: "Waits for the server",
  send: "Relay to worker",
  route: "Worker routes it",
  hold: "Waits in the worker",
  post: "Worker to tab",
  run: "Tool runs",
  return: "Tab to worker",
  reply: "Worker answers",
  deliver: "Worker to relay",
  answer: "Response is written",
  call: "Call",
};

/** @param {Detail} detail @returns {HTMLElement} */
export function waterfall(detail) {
  const spans = spansOf(detail);
  const began = spans[0]?.at ?? detail.row.started;
  const total = spans.reduce((sum, { ms }) => sum + ms, 0) || 1;
  let offset = 0;
  const rows = spans.map((span) => {
    const row = spanRow(span, offset / total, span.ms / total);
    offset += span.ms;
    return row;
  });
  const body = element("tbody", {}, ...rows);
  const head = element("tr", {}, ...["Step", "Hop", "Duration", ""].map((text) => element("th", { scope: "col" }, text)));
  const sum = element("tr", { class: "sum" }, element("th", { scope: "row" }, "Total"), element("td"), element("td", { class: "number" }, exact(total)), element("td"));
  const table = element("table", { class: "waterfall-table" }, element("caption", { class: "is-hidden" }, "Spans of the call"), element("thead", {}, head), body, element("tfoot", {}, sum));
  const clock = detail.clock ? `Clock of the worker: ${detail.clock.offset_ms.toFixed(1)} ms off, ± ${detail.clock.error_ms.toFixed(1)} ms.` : "";
  return element(
    "div",
    { class: "waterfall stack is-close" },
    element("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Waterfall" }, table),
    clock ? element("p", { class: "hint" }, clock) : null,
    eventList(detail, began),
  );
}

/** @param {Detail} detail @returns {Span[]} */
function spansOf({ spans, row }) {
  if (spans?.length) return spans;
  const hop = row.peer === "browser" ? "link" : row.peer || "relay";
  return [{ name: "call", hop, at: row.started, ms: row.ms ?? Math.max(0, Date.now() - row.started), why: null }];
}

/** @param {Span} span @param {number} start @param {number} share */
function spanRow({ name, hop, ms, why = null }, start, share) {
  const bar = element("span", { class: "span-bar", "data-hop": hop });
  bar.style.insetInlineStart = `${start * 100}%`;
  bar.style.inlineSize = `${Math.max(share * 100, 0.4)}%`;
  const said = element("th", { scope: "row" }, NAMES[name] ?? name, why ? element("span", { class: "hint" }, ` ${why}`) : null);
  return element(
    "tr",
    { "data-span": name, "data-hop": hop, "data-ms": ms },
    said,
    element("td", {}, element("span", { class: "hop", "data-hop": hop }, hop)),
    element("td", { class: "number" }, exact(ms)),
    element("td", { class: "track" }, element("span", { class: "track-area" }, bar)),
  );
}

/** @param {Detail} detail @param {number} began */
function eventList({ events }, began) {
  if (!events.length) return null;
  const items = events.map(({ at, kind, text }) =>
    element("li", { "data-event": kind }, element("time", { title: timeText(at) }, `+${duration(Math.max(0, at - began))}`), element("span", { class: "badge" }, kind), element("span", {}, text)),
  );
  return element("ol", { class: "events" }, ...items);
}

/** @param {number} ms */
function exact(ms) {
  return ms < 10 ? `${ms.toFixed(2)} ms` : ms < 1000 ? `${ms.toFixed(1)} ms` : duration(ms);
}
