/**
 * List of the offered tools on the demo page, each with Run: a real call through the relay.
 *
 * Names and owners come from the worker's catalogue, schemas from the relay's answer to `tools/list`. A row stays the same element
 * while its tool does, so that arguments that were typed remain. It offers no tool.
 */

import { byId, element, setText } from "/-/page/element.js";
import { listTools } from "/-/page/tool_runner.js";
import { placeOf } from "./sample_arguments.js";
import { ToolRow } from "./tool_row.js";

/**
 * @typedef {import("/-/client.js").CatalogueEntry} Entry
 * @typedef {import("/-/page/tool_runner.js").ToolDefinition} ToolDefinition
 * @typedef {{ kind: "this" | "worker" | "other", owner: string, title: string, hint: string, tools: Entry[] }} Group
 */

const RETRY_MS = 300;
const ATTEMPTS = 30;

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
  if (owner === tabId) return { kind: "this", owner, title: "This tab", hint: "JavaScript", tools: [] };
  if (owner === "worker") return { kind: "worker", owner, title: "The worker", hint: "Python, shared by all tabs", tools: [] };
  return { kind: "other", owner, title: tab?.title || "Another tab", hint: "another tab", tools: [] };
}

export class ToolList {
  #host = byId("tools", HTMLElement);
  #counter = byId("tools-count", HTMLElement);
  #server;
  /** By owner and name. @type {Map<string, ToolRow>} */
  #rows = new Map();
  /** Ends the wait for definitions of an earlier catalogue. */
  #asking = new AbortController();
  #isConnected = false;
  /** @type {Entry[]} */
  #entries = [];
  /** @type {Map<string, ToolDefinition>} */
  #definitions = new Map();

  /** @param {string} server */
  constructor(server) {
    this.#server = server;
  }

  /** @param {Entry[]} entries @param {string} tabId */
  show(entries, tabId) {
    this.#entries = entries;
    setText(this.#counter, entries.length === 1 ? "1 tool" : `${entries.length} tools`);
    const rows = new Map();
    const shown = groups(entries, tabId).map((group) => this.#group(group, rows));
    this.#rows = rows;
    this.#host.replaceChildren(...(shown.length ? shown : [element("p", { class: "empty" }, "No tools are offered yet.")]));
    void this.#askForDefinitions();
  }

  /** Press Run of a tool, as the visitor does. Undefined: no such tool. @param {string} name */
  run(name) {
    const row = [...this.#rows.values()].find((each) => each.name === name);
    return row?.run();
  }

  /** The relay answers only while it has the connection of this browser. @param {boolean} isConnected */
  connection(isConnected) {
    this.#isConnected = isConnected;
    if (isConnected) void this.#askForDefinitions();
    else this.#asking.abort();
  }

  /** @param {Group} group @param {Map<string, ToolRow>} rows */
  #group(group, rows) {
    const entries = group.tools.toSorted((a, b) => placeOf(a.name) - placeOf(b.name));
    const items = entries.map((entry) => {
      const key = `${entry.owner} ${entry.name}`;
      const row = this.#rows.get(key) ?? new ToolRow(this.#server, entry);
      rows.set(key, row);
      row.describe(entry.description);
      const known = this.#definitions.get(entry.name);
      if (known) row.define(known);
      return row.element;
    });
    const heading = element("h3", {}, group.title, " ", element("span", { class: "hint" }, group.hint));
    return element("section", { class: "group", "data-group": group.kind }, heading, element("ul", { class: "rows" }, ...items));
  }

  /** The relay has a new list a moment after the page has. */
  async #askForDefinitions() {
    this.#asking.abort();
    if (!this.#isConnected) return;
    const { signal } = (this.#asking = new AbortController());
    for (let attempt = 0; attempt < ATTEMPTS && !signal.aborted; attempt++) {
      try {
        const listed = await listTools(this.#server, { signal });
        if (signal.aborted) return;
        this.#definitions = new Map(listed.map((tool) => [tool.name, tool]));
        for (const row of this.#rows.values()) {
          const known = this.#definitions.get(row.name);
          if (known) row.define(known);
        }
        if (this.#entries.every(({ name }) => this.#definitions.has(name))) return;
      } catch {
        // The page shows the state of its connection.
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
