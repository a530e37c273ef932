/**
 * WebMCP adapter: offers the tools of a page's model context through a connection.
 *
 * Tools that the context lists are offered, tools that it drops are withdrawn. It supports the variants of browsers, drafts and
 * polyfills: input schemas as objects or as JSON text, arguments as either, with and without events. It does not observe
 * registrations: `webmcp.js` does.
 *
 * @import { CallContext, Connection, ToolDefinition } from "../client.js"
 */

const POLL_MS = 2_000;

/**
 * A tool as the page registered it.
 * @typedef {{
 *   name: string, title?: string, description?: string, inputSchema?: unknown, annotations?: Record<string, unknown>,
 *   execute: (input: any, options: CallContext) => unknown
 * }} Held
 */

/**
 * A tool as the context lists it.
 * @typedef {Omit<Held, "execute"> & { window?: unknown }} Listed
 */

/**
 * @typedef {EventTarget & {
 *   registerTool(tool: Held, options?: { signal?: AbortSignal }): Promise<undefined>,
 *   getTools?: () => Promise<Listed[]>,
 *   executeTool?: (tool: Listed, input: unknown, options?: { signal?: AbortSignal }) => Promise<string | null>
 * }} ModelContext
 */

/**
 * Offer the context's tools, now and after each change. Returns a function to call when `held` has changed.
 *
 * @param {Connection} connection
 * @param {ModelContext} context
 * @param {Map<string, Held>} held the tools whose functions are known
 */
export function offerModelContext(connection, context, held) {
  const offers = new ContextOffers(connection, context, held);
  offers.watch();
  offers.update();
  return () => offers.update();
}

class ContextOffers {
  #connection;
  #context;
  #held;
  /** The current offers by name; `text` is the definition, to compare. @type {Map<string, { text: string, end: AbortController }>} */
  #offered = new Map();
  #isBusy = false;
  #isStale = false;
  #problem = "";

  /**
   * @param {Connection} connection
   * @param {ModelContext} context
   * @param {Map<string, Held>} held
   */
  constructor(connection, context, held) {
    this.#connection = connection;
    this.#context = context;
    this.#held = held;
  }

  watch() {
    this.#context.addEventListener?.("toolchange", () => this.update());
    // A context without the event must be polled.
    if (!("ontoolchange" in this.#context)) setInterval(() => this.update(), POLL_MS);
  }

  /** Update the offers. One update runs at a time, and another one follows if something changed meanwhile. */
  async update() {
    this.#isStale = true;
    if (this.#isBusy) return;
    this.#isBusy = true;
    while (this.#isStale) {
      this.#isStale = false;
      this.#offer(await this.#list());
    }
    this.#isBusy = false;
  }

  /** @returns {Promise<Map<string, Listed>>} */
  async #list() {
    if (!this.#context.getTools) return new Map(this.#held);
    try {
      const listed = await this.#context.getTools();
      // Tools of frames of this origin are listed too; of two tools with one name, this document's tool is offered.
      const own = listed.filter(isOwn);
      return new Map([...listed, ...own].map((tool) => [tool.name, tool]));
    } catch (error) {
      this.#logOnce(`the page's tools can't be listed: ${error instanceof Error ? error.message : error}`);
      return new Map();
    }
  }

  /** @param {Map<string, Listed>} listed */
  #offer(listed) {
    for (const [name, { end }] of this.#offered) {
      if (listed.has(name)) continue;
      end.abort();
      this.#offered.delete(name);
    }
    for (const [name, tool] of listed) {
      const definition = define(tool, isOwn(tool) ? this.#held.get(name) : undefined);
      const text = JSON.stringify(definition);
      const before = this.#offered.get(name);
      if (before?.text === text) continue;
      const end = new AbortController();
      try {
        this.#connection.offerTool({ ...definition, execute: (args, call) => this.#run(name, args, call) }, end);
        this.#offered.set(name, { text, end });
      } catch (error) {
        this.#logOnce(`"${name}" can't be offered: ${error instanceof Error ? error.message : error}`);
      }
    }
  }

  /**
   * Run the function that the page registered, if it is known: `executeTool` turns every value into text, and loses the text of
   * errors.
   * @param {string} name
   * @param {object} args
   * @param {CallContext} call
   */
  async #run(name, args, call) {
    const held = this.#held.get(name);
    if (held) return (0, held.execute)(args, call);
    const tool = (await this.#list()).get(name);
    if (!tool) throw new Error(`The page does not offer "${name}" any more.`);
    if (!this.#context.executeTool) throw new Error(`This browser can list "${name}", but can't run it.`);
    return read(await this.#context.executeTool(tool, inEitherShape(args), { signal: call.signal }));
  }

  /** @param {string} problem */
  #logOnce(problem) {
    if (problem !== this.#problem) console.error(`tabrelay: ${problem}`);
    this.#problem = problem;
  }
}

/** @param {Listed} tool */
function isOwn(tool) {
  return !tool.window || tool.window === globalThis.window;
}

/**
 * @param {Listed} listed
 * @param {Held | undefined} held
 * @returns {ToolDefinition}
 */
function define({ name, title, description, inputSchema, annotations }, held) {
  const hints = { ...held?.annotations, ...annotations };
  return {
    name,
    ...(title ? { title } : {}),
    description: description ?? "",
    inputSchema: readSchema(inputSchema),
    annotations: readAnnotations(hints),
    // MCP has no such hint, but a reader of the results should know it.
    ...(hints.untrustedContentHint ? { _meta: { "webmcp/untrustedContentHint": true } } : {}),
  };
}

/**
 * An object or JSON text. A schema without a type gets "object", since arguments are an object.
 * @param {unknown} schema
 */
function readSchema(schema) {
  const read = typeof schema === "string" ? parse(schema) : schema;
  return { type: "object", ...(typeof read === "object" ? read : {}) };
}

/**
 * MCP's hints unchanged; WebMCP's "consequential" is MCP's "destructive". A false `readOnlyHint` may be a browser's default and
 * is left out.
 * @param {Record<string, unknown>} given
 */
function readAnnotations(given) {
  const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint, consequentialHint } = given;
  const hints = {
    readOnlyHint: readOnlyHint || undefined,
    destructiveHint: consequentialHint ? true : destructiveHint,
    idempotentHint,
    openWorldHint,
  };
  return Object.fromEntries(Object.entries(hints).filter(([, value]) => typeof value === "boolean"));
}

/**
 * Arguments as an object that converts to JSON text: browsers and polyfills differ in which one they take, and trying both
 * might run the tool twice.
 * @param {object} args
 */
function inEitherShape(args) {
  return Object.defineProperty({ ...args }, Symbol.toPrimitive, { value: () => JSON.stringify(args) });
}

/**
 * The value of an `executeTool` text: a string as it is, JSON for an object, "undefined" for nothing.
 * @param {string | null | undefined} text
 */
function read(text) {
  if (text === null) throw new Error("The page was left while the tool ran. Whether it took effect is unknown.");
  if (text === undefined || text === "undefined") return undefined;
  const value = parse(text);
  return typeof value === "object" && value !== null ? value : text;
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
