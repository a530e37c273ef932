/**
 * WebMCP adapter: offers the tools of a page's model contexts through a connection.
 *
 * Tools that a context lists are offered, tools that it drops are withdrawn. A page may have two contexts, the browser's and a
 * polyfill's at another place, and a context may be replaced. The page's own function runs where its registration was observed. It
 * does not observe registrations: `webmcp.js` does. `context_tools.js` knows the variants of contexts.
 *
 * @import { CallContext, Connection, ToolDefinition } from "../client.js"
 * @import { ContextTool, Held, Listed, ModelContext } from "./context_tools.js"
 */

import { listTools, parse } from "./context_tools.js";
import { discoverDeveloperTools } from "./developer_tools.js";

const POLL_MS = 2_000;

/**
 * @typedef {object} PageContexts
 * @property {() => ModelContext[]} current the page's model contexts at this moment
 * @property {Map<string, Held>} held the tools whose functions are known
 * @property {boolean} debugging offer developer tools too
 * @property {string[]} frames origins of frames whose tools are offered too
 */

/**
 * Offer the contexts' tools, now and after each change. Returns a function to call when `held` or the contexts have changed.
 *
 * @param {Connection} connection
 * @param {PageContexts} contexts
 */
export function offerModelContext(connection, contexts) {
  const offers = new ContextOffers(connection, contexts);
  if (contexts.debugging) discoverDeveloperTools((tools) => offers.setDeveloperTools(tools));
  offers.update();
  return () => offers.update();
}

class ContextOffers {
  #connection;
  #contexts;
  #held;
  /** The current offers by name; `text` is the definition, to compare. @type {Map<string, { text: string, end: AbortController }>} */
  #offered = new Map();
  /** @type {ContextTool[]} */
  #developerTools = [];
  /** @type {WeakSet<ModelContext>} */
  #watched = new WeakSet();
  #isPolling = false;
  #isBusy = false;
  #isStale = false;
  #problem = "";

  /**
   * @param {Connection} connection
   * @param {PageContexts} contexts
   */
  constructor(connection, contexts) {
    this.#connection = connection;
    this.#contexts = contexts;
    this.#held = contexts.held;
  }

  /** @param {ContextTool[]} tools */
  setDeveloperTools(tools) {
    this.#developerTools = tools;
    void this.update();
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

  /** @param {ModelContext} context */
  #watch(context) {
    if (this.#watched.has(context)) return;
    this.#watched.add(context);
    context.addEventListener?.("toolchange", () => this.update());
    // A context without the event must be polled.
    if ("ontoolchange" in context || this.#isPolling) return;
    this.#isPolling = true;
    setInterval(() => this.update(), POLL_MS);
  }

  /** All tools by name. Of two with one name, this document's tool is offered, and not a frame's. */
  async #list() {
    const lists = await Promise.all(this.#contexts.current().map((context) => this.#listContext(context)));
    const pages = lists.reverse().flat();
    const sorted = [...this.#developerTools, ...pages.filter(({ isOwn }) => !isOwn), ...pages.filter(({ isOwn }) => isOwn)];
    return new Map(sorted.filter((found) => this.#isWanted(found)).map((found) => [found.tool.name, found]));
  }

  /**
   * @param {ModelContext} context
   * @returns {Promise<ContextTool[]>}
   */
  async #listContext(context) {
    this.#watch(context);
    try {
      return await listTools(context, this.#contexts.frames, this.#held);
    } catch (error) {
      this.#logOnce(`the page's tools can't be listed: ${error instanceof Error ? error.message : error}`);
      return [];
    }
  }

  /**
   * Developer tools show or change what a page does not show its users: they are offered to none but who asked for them.
   * @param {ContextTool} found
   */
  #isWanted(found) {
    // defence: developer tools of a page are not offered
    return this.#contexts.debugging || !hintsOf(found.tool, this.#heldFor(found)).debugging;
  }

  /** @param {ContextTool} found */
  #heldFor({ tool, isOwn }) {
    return isOwn ? this.#held.get(tool.name) : undefined;
  }

  /** @param {Map<string, ContextTool>} listed */
  #offer(listed) {
    for (const [name, { end }] of this.#offered) {
      if (listed.has(name)) continue;
      end.abort();
      this.#offered.delete(name);
    }
    for (const [name, found] of listed) {
      const definition = define(found.tool, this.#heldFor(found));
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
   * errors and what only an own call has, such as `elicit`.
   * @param {string} name
   * @param {object} args
   * @param {CallContext} call
   */
  async #run(name, args, call) {
    const held = this.#held.get(name);
    if (held) return (0, held.execute)(args, call);
    const found = (await this.#list()).get(name);
    if (!found) throw new Error(`The page no longer offers "${name}". [TR477]`);
    return found.run(args, call);
  }

  /** @param {string} problem */
  #logOnce(problem) {
    if (problem !== this.#problem) console.error(`tabrelay: ${problem} [TR477]`);
    this.#problem = problem;
  }
}

/**
 * @param {Listed} listed
 * @param {Held | undefined} held
 * @returns {Record<string, unknown>}
 */
function hintsOf({ annotations }, held) {
  return { ...held?.annotations, ...annotations, ...(held?.annotations?.debugging ? { debugging: true } : {}) };
}

/**
 * @param {Listed} listed
 * @param {Held | undefined} held
 * @returns {ToolDefinition}
 */
function define(listed, held) {
  const hints = hintsOf(listed, held);
  const title = listed.title || held?.title;
  const outputSchema = readOutputSchema(listed.outputSchema ?? held?.outputSchema);
  const meta = {
    // MCP has no such hint, but a reader of the results should know it.
    ...(hints.untrustedContentHint ? { "webmcp/untrustedContentHint": true } : {}),
    ...(listed.origin && listed.origin !== location.origin ? { "webmcp/origin": listed.origin } : {}),
  };
  return {
    name: listed.name,
    ...(title ? { title } : {}),
    description: listed.description ?? "",
    inputSchema: readSchema(listed.inputSchema),
    ...(outputSchema ? { outputSchema } : {}),
    annotations: readAnnotations(hints),
    ...(Object.keys(meta).length ? { _meta: meta } : {}),
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
 * A JSON Schema. Libraries' own schema objects, which only a polyfill can read, are left out.
 * @param {unknown} schema
 */
function readOutputSchema(schema) {
  const read = typeof schema === "string" ? parse(schema) : schema;
  return typeof read === "object" && read !== null && !("~standard" in read) ? read : undefined;
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
