/**
 * WebMCP with one tag: offers the tools that a page registers with `document.modelContext` to MCP clients.
 *
 *     <script src="webmcp.js" data-server="notes"></script>
 *
 * An app on another origin than the relay's hosts this file, with tabrelay.js beside it. It then observes registrations even
 * while the relay is down; all other code comes from the relay.
 *
 * Put it first in the head: it then observes each registration and keeps the tool's own function, because the browser's
 * `executeTool` loses the text of errors. Tools that were registered earlier are found too.
 *
 * It is a classic script, because those run immediately and in order. It also works as a module: it exports nothing, and imports
 * the rest when it runs. It only observes registrations; `webmcp/model_context.js` offers the tools.
 */

(() => {
  /**
   * @typedef {import("./webmcp/model_context.js").Held} Held
   * @typedef {import("./webmcp/model_context.js").ModelContext} ModelContext
   * @typedef {typeof import("./webmcp/model_context.js")} Adapter
   * @typedef {typeof import("./client.js")} Client
   * @typedef {typeof import("./tabrelay.js")} Loader
   */

  const SOON_MS = 100; // a polyfill is loaded with the page's own scripts
  const LATER_MS = 2_000;
  const SOON_CHECKS = 100;

  const tag = document.currentScript ?? document.querySelector('script[data-server][src*="/webmcp.js"]');
  if (!(tag instanceof HTMLScriptElement) || !tag.dataset.server) {
    console.error('tabrelay: webmcp.js needs the name of a server: <script src="…/webmcp.js" data-server="notes">');
    return;
  }
  const { server, relay, token, worker, modules, panel } = tag.dataset;
  const panelOption = panel ? { panel: panel !== "false" } : {};
  // The loader has the same folder as this script, on the relay and where an app hosts both. It waits until the relay runs.
  const loader = new URL("./tabrelay.js", tag.src);

  /** The tools that were registered since this script runs, by name. @type {Map<string, Held>} */
  const held = new Map();
  let changed = () => {};

  connect(waitForContext()).catch((error) => console.error("tabrelay: webmcp.js could not connect", error));

  /** @param {Promise<ModelContext>} found */
  async function connect(found) {
    const { load, RELAY } = /** @type {Loader} */ (await import(loader.href));
    const [client, adapter] = /** @type {[Client, Adapter]} */ (
      await Promise.all(
        ["client.js", "webmcp/model_context.js"].map((name) => load(name, panelOption)),
      )
    );
    const isHosted = loader.origin === location.origin && RELAY !== location.origin;
    const file = worker ?? (isHosted ? loader : undefined);
    const connection = client.connect({
      server: server ?? "",
      relay: relay ?? RELAY,
      ...(token ? { token } : {}),
      ...panelOption,
      ...(file ? { worker: file } : {}),
      ...(modules ? { modules: modules.split(/[\s,]+/).filter(Boolean) } : {}),
    });
    const context = await found;
    changed = adapter.offerModelContext(connection, context, held);
  }

  /** The page's model context, as soon as it exists. The browser's own one exists from the start, a polyfill's later. */
  async function waitForContext() {
    for (let check = 0; ; check++) {
      const { modelContext } = /** @type {{ modelContext?: ModelContext }} */ (
        "modelContext" in document ? document : navigator
      );
      if (modelContext) {
        watchRegistrations(modelContext);
        return modelContext;
      }
      await new Promise((resolve) => setTimeout(resolve, check < SOON_CHECKS ? SOON_MS : LATER_MS));
    }
  }

  /**
   * Observe registrations; the last three methods are of earlier drafts.
   * @param {ModelContext} context
   */
  function watchRegistrations(context) {
    afterMethod(context, "registerTool", (tool, options) => keepTool(tool, options?.signal));
    afterMethod(context, "unregisterTool", (name) => held.delete(String(name)));
    afterMethod(context, "clearContext", () => held.clear());
    afterMethod(context, "provideContext", (all) => {
      held.clear();
      for (const tool of all?.tools ?? []) keepTool(tool);
    });
  }

  /**
   * Call `onDone` after each successful call of a method of the context.
   * @param {any} context
   * @param {string} name
   * @param {(...args: any[]) => unknown} onDone
   */
  function afterMethod(context, name, onDone) {
    const method = context[name];
    if (typeof method !== "function") return;
    const value = function (/** @type {any[]} */ ...args) {
      const answer = Reflect.apply(method, context, args);
      // The page gets a rejection itself, in the answer.
      void Promise.resolve(answer).then(() => {
        onDone(...args);
        changed();
      }, () => {});
      return answer;
    };
    Object.defineProperty(context, name, { value, configurable: true, writable: true });
  }

  /**
   * @param {any} tool
   * @param {AbortSignal} [signal]
   */
  function keepTool(tool, signal) {
    if (signal?.aborted) return;
    const { title, description, inputSchema, annotations, execute } = tool;
    const kept = { name: String(tool.name), title, description, inputSchema, annotations, execute };
    held.set(kept.name, kept);
    signal?.addEventListener("abort", () => {
      if (held.get(kept.name) === kept) held.delete(kept.name);
      changed();
    }, { once: true });
  }
})();
