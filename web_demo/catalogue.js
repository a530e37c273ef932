/**
 * List of the offered tools on the demo page, grouped by owner: this tab, the worker, other tabs of this browser.
 *
 * The list is drawn again with each catalogue of the worker. It offers and calls no tool.
 */

import { byId, element, setText } from "/-/page/element.js";

/**
 * @typedef {import("/-/client.js").CatalogueEntry} Entry
 * @typedef {{ kind: "this" | "worker" | "other", owner: string, title: string, hint: string, tools: Entry[] }} Group
 */

/**
 * @param {Entry[]} tools
 * @param {string} tabId this tab
 * @returns {Group[]}
 */
export function groups(tools, tabId) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const tool of tools) {
    const group = found.get(tool.owner) ?? groupOf(tool, tabId);
    group.tools.push(tool);
    found.set(tool.owner, group);
  }
  const order = { this: 0, worker: 1, other: 2 };
  return [...found.values()].sort((a, b) => order[a.kind] - order[b.kind] || a.title.localeCompare(b.title));
}

/** @param {Entry} tool @param {string} tabId @returns {Group} */
function groupOf({ owner, tab }, tabId) {
  if (owner === tabId) return { kind: "this", owner, title: "This tab", hint: "gone when you close it", tools: [] };
  if (owner === "worker") return { kind: "worker", owner, title: "Worker", hint: "shared by all tabs", tools: [] };
  return { kind: "other", owner, title: tab?.title || "Another tab", hint: "another tab", tools: [] };
}

export function catalogue() {
  const host = byId("tools", HTMLElement);
  const counter = byId("tools-count", HTMLElement);

  return {
    /** @param {Entry[]} tools @param {string} tabId */
    show(tools, tabId) {
      setText(counter, tools.length === 1 ? "1 tool" : `${tools.length} tools`);
      const shown = groups(tools, tabId).map(card);
      host.replaceChildren(...(shown.length ? shown : [element("p", { class: "empty" }, "No tools are on offer.")]));
    },
  };
}

/** @param {Group} group */
function card(group) {
  return element(
    "div",
    { class: "tabcard", "data-group": group.kind },
    element(
      "h3",
      {},
      element("span", { class: "tabname" }, group.title),
      element("span", { class: "count" }, group.hint),
    ),
    element("ul", { class: "tools" }, ...group.tools.map(row)),
  );
}

/** @param {Entry} tool */
function row(tool) {
  return element(
    "li",
    { "data-tool": tool.name, "data-owner": tool.owner },
    element("p", { class: "name" }, tool.name),
    tool.description ? element("p", { class: "about" }, tool.description) : null,
  );
}
