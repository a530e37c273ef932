/**
 * The tools of one tab and the calls that run in them. It gets messages and posts messages; where the port leads, and
 * whether there is one, is the connection's business.
 *
 * @import { CallMessage, FromPage, Tool, ToolDefinition } from "./ports.js"
 */

import { describe, toResult } from "./result.js";
import { check } from "./schema.js";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;

export class Tools {
  /** @type {Map<string, Tool>} */
  #tools = new Map();
  /** @type {Map<string, AbortController>} */
  #running = new Map();

  /**
   * @param {Tool} tool
   * @returns {ToolDefinition}
   */
  add(tool) {
    const name = tool?.name;
    if (!NAME.test(name ?? "")) {
      throw new TypeError(`A tool needs a name of letters, digits, "_", "." and "-", not ${JSON.stringify(name)}`);
    }
    if (typeof tool.execute !== "function") throw new TypeError(`Tool "${name}" has no function \`execute\``);
    const definition = define(tool);
    this.#tools.set(name, tool);
    return definition;
  }

  /**
   * Take a tool away, unless another one has replaced it meanwhile.
   * @param {Tool} tool
   */
  remove(tool) {
    return this.#tools.get(tool.name) === tool && this.#tools.delete(tool.name);
  }

  definitions() {
    return [...this.#tools.values()].map(define);
  }

  /**
   * Run a call and post what it says and what comes of it.
   * @param {CallMessage} message
   * @param {(reply: FromPage) => void} post
   */
  async run({ call, name, arguments: args, caller }, post) {
    const abort = new AbortController();
    const { signal } = abort;
    this.#running.set(call, abort);
    try {
      const value = await this.#find(name, args).execute(args, {
        call,
        signal,
        caller,
        progress(progress, total, message) {
          post({ t: "progress", call, progress, ...(total == null ? {} : { total }), ...(message ? { message } : {}) });
        },
        log(level, data) {
          post({ t: "log", call, level, data: plain(data) });
        },
      });
      const json = JSON.stringify(toResult(value));
      if (!signal.aborted) post({ t: "result", call, json });
    } catch (error) {
      if (!signal.aborted) post({ t: "error", call, message: describe(error) });
    } finally {
      if (this.#running.get(call) === abort) this.#running.delete(call);
    }
  }

  /**
   * @param {string} call
   * @param {string} reason
   */
  cancel(call, reason) {
    this.#running.get(call)?.abort(new DOMException(reason, "AbortError"));
  }

  /** @param {string} reason */
  cancelAll(reason) {
    for (const call of this.#running.keys()) this.cancel(call, reason);
    this.#running.clear();
  }

  /**
   * @param {string} name
   * @param {unknown} args
   */
  #find(name, args) {
    const tool = this.#tools.get(name);
    if (!tool) throw new Error(`This tab does not offer "${name}" any more.`);
    const faults = check(tool.inputSchema ?? {}, args);
    if (faults.length) throw new TypeError(`Invalid arguments for tool "${name}":\n${faults.join("\n")}`);
    return tool;
  }
}

/**
 * What the worker gets to know of a tool: plain data, without its function.
 * @param {Tool} tool
 * @returns {ToolDefinition}
 */
function define({ name, title, description, inputSchema, outputSchema, annotations }) {
  return /** @type {ToolDefinition} */ (
    plain({ name, title, description: description ?? "", inputSchema, outputSchema, annotations })
  );
}

/**
 * A copy that is nothing but data: what JSON can't say would make postMessage throw.
 * @param {unknown} value
 * @returns {unknown}
 */
function plain(value) {
  return JSON.parse(JSON.stringify(value) ?? "null");
}
