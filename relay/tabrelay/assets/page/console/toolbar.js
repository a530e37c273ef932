/**
 * Tools of the list of calls: lanes, export, and the commands of the palette.
 *
 * It connects the parts; each part does its own work.
 */

import { byId, element } from "../element.js";
import { exportMenu } from "./export_menu.js";
import { termText, withTerm } from "./filter.js";
import { Lanes } from "./lanes.js";
import { commandPalette } from "./palette.js";
import { titleOf } from "./rows.js";
import { setUrlValues, urlValue } from "./url_state.js";

/**
 * @typedef {import("./palette.js").Command} Command
 * @typedef {import("./server_texts.js").Server} Server
 *
 * @typedef {object} ToolbarContext
 * @property {import("./traffic.js").Traffic} traffic
 * @property {import("./filter_bar.js").FilterBar} filterBar
 * @property {() => readonly Server[]} servers
 * @property {(name: string, part?: string) => void} openServer
 * @property {(row: import("./rows.js").Row) => void} openCall
 * @property {() => Command[]} actions
 * @property {import("./export_menu.js").ExportContext} exports
 */

const MAX_CALLS = 200;
const LANES = ["client", "server", "tab"];

/** @param {ToolbarContext} context */
export function makeToolbar(context) {
  const { traffic, filterBar } = context;
  const bar = byId("calls-tools", HTMLElement);
  const palette = commandPalette(() => commands(context));
  const search = element("button", { type: "button", class: "button is-small", "aria-keyshortcuts": "Control+K Meta+K", title: "Ctrl-K or ⌘K" }, "Search …");
  search.addEventListener("click", () => palette.open());
  bar.append(lanesMenu(traffic, filterBar), exportMenu(context.exports), search);
  closeMenus();
  addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    filterBar.focus();
  });
}

/** A menu closes with Escape, and with a click beside it. */
function closeMenus() {
  const open = () => [...document.querySelectorAll("details.menu[open]")].filter((menu) => menu instanceof HTMLDetailsElement);
  document.addEventListener("click", ({ target }) => {
    for (const menu of open()) if (target instanceof Node && target.isConnected && !menu.contains(target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const [menu] = open();
    if (event.key !== "Escape" || !menu) return;
    event.stopPropagation();
    menu.open = false;
    menu.querySelector("summary")?.focus();
  });
}

/**
 * @param {import("./traffic.js").Traffic} traffic
 * @param {import("./filter_bar.js").FilterBar} filterBar
 */
function lanesMenu(traffic, filterBar) {
  const place = byId("lanes-place", HTMLElement);
  const lanes = new Lanes((key, value) => filterBar.set(withTerm(filterBar.filter.text, key, value)));
  place.replaceChildren(lanes.root);
  const select = element("select", { class: "button is-small", "aria-label": "Lanes" }, element("option", { value: "" }, "No lanes"), ...LANES.map((by) => element("option", { value: by }, `Lanes by ${by}`)));
  const choose = () => {
    place.hidden = !select.value;
    setUrlValues({ lanes: select.value });
    if (!select.value) lanes.clear();
    lanes.by = select.value;
  };
  select.value = LANES.includes(urlValue("lanes")) ? urlValue("lanes") : "";
  select.addEventListener("change", choose);
  choose();
  traffic.addEventListener("drawn", () => lanes.show(traffic.filtered));
  lanes.addEventListener("brush", (event) => {
    const brush = /** @type {CustomEvent<[number, number] | null>} */ (event).detail;
    traffic.setBrush(brush && ((row) => row.started <= brush[1] && row.started + (row.ms ?? Infinity) >= brush[0]));
  });
  return select;
}

/** @param {ToolbarContext} context @returns {Command[]} */
function commands({ traffic, filterBar, servers, openServer, openCall, actions }) {
  const found = servers();
  return [
    ...actions(),
    ...found.map(({ name, state }) => ({ kind: "server", text: name, hint: state, run: () => openServer(name) })),
    ...filterBar.saved.map((text) => ({ kind: "filter", text, run: () => filterBar.set(text) })),
    ...found.flatMap(({ name, tools }) => tools.map((tool) => ({ kind: "tool", text: tool.name, hint: name, run: () => openServer(name, "tools") }))),
    ...found.map(({ name }) => ({ kind: "filter", text: `calls of ${name}`, run: () => filterBar.set(termText("server", name)) })),
    ...traffic.shown
      .slice(-MAX_CALLS)
      .reverse()
      .map((row) => ({ kind: "call", text: titleOf(row), hint: `${row.server} · ${row.state} · ${row.id}`, run: () => openCall(row) })),
  ];
}
