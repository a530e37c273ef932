/**
 * Panel of a server's tools, as its clients list them, each with a form that calls it through the relay.
 *
 * The connection of the page tells when something is offered or withdrawn; the definitions are the relay's own answer to `tools/list`.
 * A tool whose definition stays keeps its form, with what was typed and the last result. It makes no connection.
 *
 * @import { Connection } from "/-/client.js"
 * @import { ToolDefinition } from "./tool_runner.js"
 */

import { callForm } from "./call_form.js";
import { codeBlock } from "./code_block.js";
import { element } from "./element.js";
import { listTools } from "./tool_runner.js";

const SETTLE_MS = 100;
const RETRY_MS = 500;
const ATTEMPTS = 20;

/**
 * @typedef {object} ToolPanelOptions
 * @property {string} server
 * @property {string} client the name that calls show in lists and in questions to the user
 * @property {Record<string, Record<string, unknown>>} [values] arguments that are filled in, by the names of the tools
 */

export class ToolPanel {
  #place;
  #connection;
  #options;
  /** @type {Map<string, { text: string, entry: HTMLElement }>} */
  #entries = new Map();
  /** Ends the update that runs. */
  #updating = new AbortController();

  /**
   * @param {HTMLElement} place
   * @param {Connection} connection
   * @param {ToolPanelOptions} options
   */
  constructor(place, connection, options) {
    this.#place = place;
    this.#connection = connection;
    this.#options = options;
    for (const event of ["catalogue", "state"]) connection.addEventListener(event, () => void this.#update());
    this.#show([]);
    void this.#update();
  }

  /** Show the tools that the relay lists, when it lists what the connection reports. */
  async #update() {
    this.#updating.abort();
    this.#updating = new AbortController();
    const { signal } = this.#updating;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await new Promise((resolve) => setTimeout(resolve, attempt ? RETRY_MS : SETTLE_MS));
      if (signal.aborted || this.#connection.state.state !== "connected") return;
      const tools = await listTools(this.#options.server, { signal }).catch(() => null);
      if (signal.aborted) return;
      if (tools) this.#show(tools);
      if (tools && this.#isComplete(tools)) return;
    }
  }

  /** @param {ToolDefinition[]} tools */
  #isComplete(tools) {
    const names = new Set(tools.map(({ name }) => name));
    return this.#connection.catalogue?.tools.every(({ name }) => names.has(name)) ?? true;
  }

  /** @param {ToolDefinition[]} tools */
  #show(tools) {
    const entries = new Map(tools.map((tool) => {
      const text = JSON.stringify(tool);
      const known = this.#entries.get(tool.name);
      return [tool.name, known?.text === text ? known : { text, entry: this.#entry(tool) }];
    }));
    const isSame = entries.size === this.#entries.size && [...entries].every(([name, each]) => this.#entries.get(name) === each);
    if (isSame && entries.size) return;
    this.#entries = entries;
    const none = element("p", { class: "empty" }, "The tools appear here when this page is connected to the relay.");
    this.#place.replaceChildren(...(entries.size ? [...entries.values()].map(({ entry }) => entry) : [none]));
  }

  /** @param {ToolDefinition} tool */
  #entry(tool) {
    const { name, title, description = "", inputSchema, annotations } = tool;
    const { server, client, values } = this.#options;
    const asks = annotations?.destructiveHint ? element("span", { class: "badge is-warn" }, "asks first") : null;
    const id = `tool-${name}`;
    return element(
      "article",
      { class: "tool", "data-tool": name, "aria-labelledby": id },
      element("div", { class: "row" }, element("h3", { id }, title ?? name), asks),
      element("p", { class: "hint" }, description),
      callForm(server, { name, ...(inputSchema ? { inputSchema } : {}) }, { client, label: "Run", values: values?.[name] ?? {} }),
      element("details", {}, element("summary", {}, "Definition"), codeBlock(JSON.stringify(tool, null, 2), "json")),
    );
  }
}
