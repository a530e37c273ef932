/**
 * Tools of one model context, in the variants of browsers, drafts and polyfills.
 *
 * Each tool is listed with a function that runs it. The variants: `getTools` and `executeTool`, with input schemas as objects or as
 * JSON text and arguments as either; `listTools` and `callTool` of @mcp-b/global 2; `navigator.modelContextTesting` of a polyfill that
 * has neither; and contexts that can't be listed, whose registrations were observed. It does not merge the contexts of a page:
 * `model_context.js` does.
 *
 * @import { CallContext } from "../client.js"
 */

import { readNavigatedPage } from "./navigated_page.js";

/**
 * A tool as the page registered it.
 * @typedef {{
 *   name: string, title?: string, description?: string, inputSchema?: unknown, outputSchema?: unknown,
 *   annotations?: Record<string, unknown>, execute: (input: any, options: CallContext) => unknown, context?: ModelContext
 * }} Held
 */

/**
 * A tool as a context lists it.
 * @typedef {Omit<Held, "execute" | "context"> & { window?: Window, origin?: string }} Listed
 */

/**
 * @typedef {EventTarget & {
 *   registerTool(tool: Held, options?: { signal?: AbortSignal }): Promise<undefined>,
 *   getTools?: (options?: { fromOrigins: string[] }) => Promise<Listed[]>,
 *   executeTool?: (tool: Listed, input: unknown, options?: { signal?: AbortSignal }) => Promise<string | null>,
 *   listTools?: () => Listed[] | Promise<Listed[]>,
 *   callTool?: (call: { name: string, arguments: object }) => Promise<unknown>,
 * }} ModelContext
 */

/**
 * @typedef {{
 *   listTools?: () => Listed[],
 *   executeTool?: (name: string, input: string, options?: { signal?: AbortSignal }) => Promise<string | null>,
 * }} TestingContext
 */

/**
 * A listed tool, and how to run it. `isOwn`: of this document, not of a frame.
 * @typedef {{ tool: Listed, isOwn: boolean, run: (args: object, call: CallContext) => Promise<unknown> }} ContextTool
 */

/**
 * @param {ModelContext} context
 * @param {string[]} frames the origins of frames whose tools are wanted too
 * @param {Map<string, Held>} held the tools whose functions are known
 * @returns {Promise<ContextTool[]>}
 */
export async function listTools(context, frames, held) {
  if (context.getTools) return listWithGetTools(context, context.getTools, frames);
  const { listTools, callTool } = context;
  if (listTools && callTool) {
    const run = (/** @type {string} */ name, /** @type {object} */ args) =>
      Reflect.apply(callTool, context, [{ name, arguments: args }]);
    return named(await Reflect.apply(listTools, context, []), run);
  }
  const testing = /** @type {{ modelContextTesting?: TestingContext }} */ (navigator).modelContextTesting;
  const { executeTool } = testing ?? {};
  if (testing?.listTools && executeTool) {
    return named(testing.listTools(), async (name, args, { signal }) =>
      parse((await Reflect.apply(executeTool, testing, [name, JSON.stringify(args), { signal }])) ?? ""),
    );
  }
  return named(
    [...held.values()].filter((tool) => tool.context === context),
    (name) => { throw new Error(`This page's model context can't run "${name}". [TR477]`); },
  );
}

/**
 * @param {Listed[]} tools
 * @param {(name: string, args: object, call: CallContext) => unknown} run
 * @returns {ContextTool[]}
 */
function named(tools, run) {
  return tools.map((tool) => ({ tool, isOwn: true, run: async (args, call) => run(tool.name, args, call) }));
}

/**
 * @param {ModelContext} context
 * @param {NonNullable<ModelContext["getTools"]>} getTools
 * @param {string[]} frames
 * @returns {Promise<ContextTool[]>}
 */
async function listWithGetTools(context, getTools, frames) {
  const get = (/** @type {{ fromOrigins: string[] }[]} */ ...options) => Reflect.apply(getTools, context, options);
  // Polyfills have no tools of other origins, and refuse to look for them.
  const listed = frames.length ? await get({ fromOrigins: frames }).catch(() => get()) : await get();
  // @mcp-b/global lists output schemas with `listTools` only.
  const more = /** @type {Listed[]} */ ((await context.listTools?.()) ?? []);
  const details = new Map(more.map((tool) => /** @type {const} */ ([tool.name, tool])));
  return listed.map((/** @type {Listed} */ tool) => {
    const isOwn = !tool.window || tool.window === globalThis.window;
    /** @type {ContextTool["run"]} */
    const run = (args, call) => execute(context, tool, args, call);
    return { tool: addDetails(tool, isOwn ? details.get(tool.name) : undefined), isOwn, run };
  });
}

/**
 * @param {Listed} tool
 * @param {Listed | undefined} details
 * @returns {Listed}
 */
function addDetails({ name, title, description, inputSchema, outputSchema, annotations, window, origin }, details) {
  const kept = outputSchema ?? details?.outputSchema;
  return {
    name, title, description, inputSchema, annotations, window,
    ...(kept ? { outputSchema: kept } : {}), ...(origin ? { origin } : {}),
  };
}

/**
 * @param {ModelContext} context
 * @param {Listed} tool
 * @param {object} args
 * @param {CallContext} call
 */
async function execute(context, tool, args, { signal }) {
  if (!context.executeTool) throw new Error(`This browser can list "${tool.name}", but can't run it. [TR477]`);
  const text = await context.executeTool(tool, inEitherShape(args), { signal });
  return text === null ? readNavigatedPage(tool.window) : read(text);
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
 * @param {string | undefined} text
 */
function read(text) {
  if (text === undefined || text === "undefined") return undefined;
  const value = parse(text);
  return typeof value === "object" && value !== null ? value : text;
}

/** @param {string} text */
export function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
