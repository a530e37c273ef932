/**
 * Developer tools of a page, which frameworks and libraries give in answer to the event "devtoolstooldiscovery".
 *
 * The event is dispatched when this module starts and after each listener that is added or removed, because handlers build
 * their tools when they are asked. Tools are kept from one discovery to the next. It does not offer them: `model_context.js` does.
 *
 * @import { ContextTool } from "./context_tools.js"
 */

/**
 * @typedef {{ name: string, description?: string, inputSchema?: unknown, annotations?: Record<string, unknown>,
 *   execute: (input: object) => unknown }} DeveloperTool
 * @typedef {{ name: string, description?: string, tools: DeveloperTool[] }} ToolGroup
 */

const DISCOVERY = "devtoolstooldiscovery";

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
  const { name, description, inputSchema, annotations } = tool;
  return {
    tool: { name, description, inputSchema, annotations: { ...annotations, debugging: true } },
    isOwn: true,
    run: async (args) => tool.execute(args),
  };
}
