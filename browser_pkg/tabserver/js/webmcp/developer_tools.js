/**
 * Developer tools of a page, which frameworks and libraries give in answer to the event "devtoolstooldiscovery".
 *
 * The event is dispatched when this module starts and after each listener that is added or removed, because handlers build
 * their tools when they are asked. Their names may have characters that MCP does not allow, their parameters may be elements, which
 * callers name by CSS selectors, and their results may contain elements and objects of classes, which become text. It does not
 * offer the tools: `model_context.js` does.
 *
 * @import { ContextTool } from "./context_tools.js"
 */

/**
 * @typedef {{ name: string, description?: string, inputSchema?: unknown, annotations?: Record<string, unknown>,
 *   execute: (input: object) => unknown }} DeveloperTool
 * @typedef {{ name: string, description?: string, tools: DeveloperTool[] }} ToolGroup
 */

const DISCOVERY = "devtoolstooldiscovery";
/** The members of a result that are kept, and how deep they are nested. */
const MAX_VALUES = 20_000;
const MAX_DEPTH = 32;

/**
 * @param {(tools: ContextTool[]) => void} found
 */
export function discoverDeveloperTools(found) {
  let run = 0;
  const discover = async () => {
    const current = ++run;
    const groups = await askPage();
    if (current === run) found(groups.flatMap(({ tools }) => tools.map(toContextTool)));
  };
  for (const method of /** @type {const} */ (["addEventListener", "removeEventListener"])) {
    const original = window[method];
    const value = (/** @type {Parameters<typeof original>} */ ...args) => {
      Reflect.apply(original, window, args);
      if (args[0] === DISCOVERY) void discover();
    };
    Object.defineProperty(window, method, { value, configurable: true, writable: true });
  }
  void discover();
}

/** @returns {Promise<ToolGroup[]>} */
async function askPage() {
  const answers = /** @type {unknown[]} */ ([]);
  const event = Object.assign(new CustomEvent(DISCOVERY), { respondWith: (/** @type {unknown} */ group) => void answers.push(group) });
  await null; // a listener is asked after the call that added it
  window.dispatchEvent(event);
  const groups = await Promise.allSettled(answers);
  return groups.flatMap((group) => (group.status === "fulfilled" && isGroup(group.value) ? [group.value] : []));
}

/**
 * @param {any} group
 * @returns {group is ToolGroup}
 */
function isGroup(group) {
  const isTool = (/** @type {any} */ tool) => typeof tool?.name === "string" && typeof tool.execute === "function";
  return Array.isArray(group?.tools) && group.tools.every(isTool);
}

/**
 * @param {DeveloperTool} tool
 * @returns {ContextTool}
 */
function toContextTool(tool) {
  const { description, annotations } = tool;
  const { schema, elements } = withSelectors(tool.inputSchema);
  return {
    tool: {
      name: tool.name.replace(/[^\w.-]/g, "_"),
      description,
      inputSchema: schema,
      annotations: { ...annotations, debugging: true },
    },
    isOwn: true,
    run: async (args) => toPlain(await tool.execute(withElements(args, elements))),
  };
}

/**
 * The schema with strings in place of elements, and the names of these parameters.
 * @param {any} schema
 * @returns {{ schema: unknown, elements: string[] }}
 */
function withSelectors(schema) {
  const elements = [];
  const properties = /** @type {Record<string, unknown>} */ ({});
  for (const [name, property] of Object.entries(schema?.properties ?? {})) {
    const isElement = property?.["x-mcp-type"] === "HTMLElement";
    if (isElement) elements.push(name);
    properties[name] = isElement
      ? { type: "string", description: `${property.description ?? ""} A CSS selector; its first element counts.`.trim() }
      : property;
  }
  return { schema: { ...schema, properties }, elements };
}

/**
 * @param {object} args
 * @param {string[]} elements
 */
function withElements(args, elements) {
  const found = /** @type {Record<string, unknown>} */ ({ ...args });
  for (const name of elements.filter((name) => name in found)) {
    found[name] = document.querySelector(String(found[name]));
    if (!found[name]) throw new Error(`No element of the page matches ${name}.`);
  }
  return found;
}

/**
 * A value with a JSON form: plain objects, arrays, maps and sets are kept, anything else is named.
 * @param {unknown} value
 */
function toPlain(value) {
  let left = MAX_VALUES;
  const open = new Set();

  /** @type {(value: any, depth: number) => unknown} */
  const convert = (value, depth) => {
    if (typeof value === "function") return `[function ${value.name}]`;
    if (typeof value === "bigint" || typeof value === "symbol") return String(value);
    if (typeof value !== "object" || value === null) return value;
    if (value instanceof Element) return nameOf(value);
    if (open.has(value)) return "[circular]";
    if (--left < 0 || depth > MAX_DEPTH) return "[left out]";
    open.add(value);
    const converted = convertMembers(value, depth + 1);
    open.delete(value);
    return converted;
  };

  /** @type {(value: any, depth: number) => unknown} */
  const convertMembers = (value, depth) => {
    if (value instanceof Map || value instanceof Set) value = [...value];
    if (Array.isArray(value)) return value.map((item) => convert(item, depth));
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== null && prototype !== Object.prototype) return `[${value.constructor?.name ?? "object"}]`;
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, convert(member, depth)]));
  };

  return convert(value, 0);
}

/** @param {Element} element */
function nameOf(element) {
  return `<${element.localName}${element.id ? ` id="${element.id}"` : ""}>`;
}
