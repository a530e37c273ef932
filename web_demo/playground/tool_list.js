/**
 * List of the program's tools as clients see them, each with a form that calls it through the relay.
 *
 * The definitions come from the relay's own answer to `tools/list`, as soon as it has the program's tools. All texts of a program and
 * of results go in as text nodes.
 *
 * @import { ToolDefinition } from "/-/page/tool_runner.js"
 * @import { Definition } from "./program_port.js"
 */

import { callForm } from "/-/page/call_form.js";
import { codeBlock } from "/-/page/code_block.js";
import { element } from "/-/page/element.js";
import { listTools } from "/-/page/tool_runner.js";

const RETRY_MS = 150;
const ATTEMPTS = 40;

export class ToolList {
  #place;
  #server;
  /** Ends the wait for the tools of an earlier run. */
  #waiting = new AbortController();

  /**
   * @param {HTMLElement} place
   * @param {string} server
   */
  constructor(place, server) {
    this.#place = place;
    this.#server = server;
  }

  get isEmpty() {
    return !this.#place.querySelector("[data-tool]");
  }

  /**
   * Show these tools. Resolves when they are shown as the relay lists them, or after some seconds, with the names of those that it does
   * not list as they are; null: another program has replaced this one.
   * @param {Definition[]} tools
   */
  async show(tools) {
    this.#waiting.abort();
    this.#waiting = new AbortController();
    const { signal } = this.#waiting;
    this.#fill(tools, []);
    for (let attempt = 1; tools.length; attempt++) {
      const listed = await this.#listed(tools, signal);
      if (signal.aborted) return null;
      const missing = tools.flatMap(({ name }, index) => (listed[index] ? [] : name));
      if (!missing.length || attempt === ATTEMPTS) {
        this.#fill(tools, listed);
        return missing;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
    return [];
  }

  /**
   * Each of these tools as the relay lists it.
   * @param {Definition[]} tools
   * @param {AbortSignal} signal
   */
  async #listed(tools, signal) {
    try {
      const all = await listTools(this.#server, { signal });
      return tools.map((tool) => all.find((each) => each.name === tool.name && isSame(each, tool)));
    } catch {
      return []; // the page shows the state of its connection
    }
  }

  /**
   * @param {Definition[]} tools as the program has them
   * @param {(ToolDefinition | undefined)[]} listed the same as the relay lists them
   */
  #fill(tools, listed) {
    if (!tools.length) return this.#place.replaceChildren(element("p", { class: "empty" }, "None. Press Run."));
    this.#place.replaceChildren(...tools.map((tool, index) => this.#entry(listed[index] ?? tool, listed[index] ? "relay" : "program")));
  }

  /**
   * @param {Partial<Definition> & { name: string }} tool
   * @param {"program" | "relay"} from
   */
  #entry(tool, from) {
    const { name, title, description, inputSchema, outputSchema, annotations } = tool;
    const shown = { name, title, description, inputSchema, outputSchema, annotations };
    return element(
      "article",
      { class: "tool", "data-tool": name, "data-from": from },
      element("h3", {}, title ?? name),
      element("p", {}, description ?? ""),
      from === "relay" ? callForm(this.#server, tool, { client: "playground" }) : null,
      element("details", {}, element("summary", {}, "Definition"), codeBlock(JSON.stringify(shown, null, 2), "json")),
    );
  }
}

/**
 * Is it this definition, and not that of an earlier run?
 * @param {{ description?: string, inputSchema?: object }} listed
 * @param {Definition} tool
 */
function isSame(listed, tool) {
  return (listed.description ?? "") === (tool.description ?? "") && (!tool.inputSchema || sorted(listed.inputSchema) === sorted(tool.inputSchema));
}

/** @param {unknown} value @returns {string} */
function sorted(value) {
  return JSON.stringify(value, (_, inner) =>
    inner && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
