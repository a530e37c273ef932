/**
 * A page's model context (WebMCP), offered through a connection: what it lists becomes tools, what it drops is withdrawn.
 *
 * It takes the API in the shapes that browsers, drafts and polyfills have given it: input schemas as objects or as JSON
 * text, arguments as either, with and without events. Who registers what, and when, is watched by `webmcp.js`.
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
 * Offer what the context has, now and later. Returns what is to be called when the held tools changed.
 *
 * @param {Connection} connection
 * @param {ModelContext} context
 * @param {Map<string, Held>} held the tools whose own functions are known
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
  /** What is offered now, by name: as text, to compare. @type {Map<string, { text: string, end: AbortController }>} */
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
    // A context without the event can only be asked again and again.
    if (!("ontoolchange" in this.#context)) setInterval(() => this.update(), POLL_MS);
  }

  /** Bring the offers up to date. One look at a time, and another one if something changed meanwhile. */
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
      // Frames of this origin are listed too; of two tools with one name, this document's own is the one that counts.
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
   * By the function that the page registered, if it is known: `executeTool` makes a text of every value, and keeps
   * nothing of an error.
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
    // MCP has no word for it, and whoever reads the results should know.
    ...(hints.untrustedContentHint ? { _meta: { "webmcp/untrustedContentHint": true } } : {}),
  };
}

/**
 * An object or JSON text; without a type it is meant for an object, since that is what arguments are.
 * @param {unknown} schema
 */
function readSchema(schema) {
  const read = typeof schema === "string" ? parse(schema) : schema;
  return { type: "object", ...(typeof read === "object" ? read : {}) };
}

/**
 * MCP's hints as they are; "consequential" is WebMCP's word for what MCP calls destructive. A hint that is false may only
 * be a default, except where the page itself wrote it.
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
 * Arguments as an object, which is JSON text where text is wanted: browsers and polyfills differ, and asking twice might
 * run the tool twice.
 * @param {object} args
 */
function inEitherShape(args) {
  return Object.defineProperty({ ...args }, Symbol.toPrimitive, { value: () => JSON.stringify(args) });
}

/**
 * What `executeTool` gives: the text of a string, JSON of an object, "undefined" of nothing.
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
