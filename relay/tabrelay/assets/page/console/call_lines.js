/**
 * Lines of the list of calls: order, rounds of one call below their first round, and the cells of a line.
 *
 * The newest call is first; later rounds of a call follow its first round, in the order of time. Texts go in as text nodes.
 */

import { duration, element, setText } from "../element.js";
import { bytesText, clientOf, isOpen, lookOf, msOf, outcomeOf, tabOf, titleOf } from "./rows.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{ row: Row, round: number, rounds: number }} Line `round`: 0 for a first round; `rounds`: of the call, on its first line
 */

/** Widest bar of a duration, on a scale of orders of magnitude: 1 ms is nothing, 100 s is all. */
const SCALE = 5;

/** @type {[name: string, label: string][]} */
const COLUMNS = [
  ["time", "Time"],
  ["what", "Call"],
  ["server", "Server"],
  ["client", "Client"],
  ["tab", "Tab"],
  ["status", "Status"],
  ["took", "Duration"],
  ["size", "Size"],
];

export function headLine() {
  const cells = COLUMNS.map(([name, label]) => element("span", { role: "columnheader", class: `cell ${name}` }, label));
  return element("div", { class: "line is-head", role: "row", "aria-rowindex": 1 }, ...cells);
}

/**
 * The lines of rows, the newest first, with the rounds of a call together.
 *
 * @param {readonly Row[]} rows the oldest first
 * @returns {Line[]}
 */
export function linesOf(rows) {
  /** @type {Map<string, Row[]>} */
  const later = new Map();
  /** @type {Set<string>} */
  const firsts = new Set();
  for (const row of rows) {
    const key = `${row.relay ?? ""} ${row.group}`;
    if (!firsts.has(key)) firsts.add(key);
    else later.set(key, [...(later.get(key) ?? []), row]);
  }
  /** @type {Line[]} */
  const lines = [];
  const shown = new Set();
  const inOrder = rows.filter((row) => {
    const key = `${row.relay ?? ""} ${row.group}`;
    if (shown.has(key)) return false;
    shown.add(key);
    return true;
  });
  for (let at = inOrder.length - 1; at >= 0; at--) {
    const row = inOrder[at];
    if (!row) continue;
    const others = later.get(`${row.relay ?? ""} ${row.group}`) ?? [];
    lines.push({ row, round: 0, rounds: others.length + 1 });
    others.forEach((other, index) => lines.push({ row: other, round: index + 1, rounds: 0 }));
  }
  return lines;
}

/**
 * Fill the node of a line. A node keeps its elements, so that a selection survives.
 *
 * @param {Line} line
 * @param {HTMLElement} node
 * @param {number} now
 */
export function drawLine({ row, round, rounds }, node, now) {
  if (!node.childElementCount) {
    const cells = COLUMNS.map(([name]) => element("span", { role: "gridcell", class: `cell ${name}` }));
    node.append(...cells);
    part(node, "what")?.append(element("span", { class: "title" }), element("span", { class: "mark", hidden: true }));
    part(node, "status")?.append(element("span", { class: "badge" }));
    part(node, "took")?.append(element("span", { class: "bar" }), element("span", { class: "value" }));
  }
  node.dataset.call = row.name ?? row.method;
  node.dataset.outcome = outcomeOf(row);
  node.dataset.state = row.state;
  node.classList.toggle("is-round", round > 0);
  text(node, "time", timeText(row.started));
  text(node, "what .title", titleOf(row));
  const mark = node.querySelector(".mark");
  if (mark instanceof HTMLElement) {
    const said = round ? `round ${round + 1}` : rounds > 1 ? `${rounds} rounds` : row.held ? "held" : row.replays ? "replayed" : "";
    mark.hidden = !said;
    setText(mark, said);
  }
  text(node, "server", row.server);
  text(node, "client", clientOf(row));
  text(node, "tab", tabOf(row));
  const badge = node.querySelector(".status .badge");
  if (badge) {
    badge.className = `badge ${lookOf(row)}`;
    setText(badge, outcomeOf(row).replaceAll("_", " "));
  }
  const ms = msOf(row, now);
  text(node, "took .value", row.kind === "listen" && isOpen(row) ? "open" : duration(ms));
  const bar = node.querySelector(".bar");
  if (bar instanceof HTMLElement) bar.style.inlineSize = `${Math.min(100, (Math.log10(ms + 1) / SCALE) * 100)}%`;
  text(node, "size", row.is_log ? "" : bytesText(row.bytes_in + row.bytes_out));
}

/** @param {HTMLElement} node @param {string} name */
function part(node, name) {
  return node.querySelector(`.${name}`);
}

/** @param {HTMLElement} node @param {string} name @param {string} value */
function text(node, name, value) {
  const found = part(node, name);
  if (found) setText(found, value);
}

/** @param {number} ms since 1970 */
export function timeText(ms) {
  const when = new Date(ms);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}.${String(when.getMilliseconds()).padStart(3, "0")}`;
}
