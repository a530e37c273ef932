/**
 * WebMCP with one tag: the tools that a page registers with `document.modelContext` are offered to MCP clients.
 *
 *     <script src="webmcp.js" data-server="notes"></script>
 *
 * An app on another origin than the relay's hosts this file, with tabrelay.js beside it. The registrations are then seen
 * whether the relay runs or not; the rest comes from the relay.
 *
 * Put it first in the head: it then sees each registration as it happens and keeps the tool's own function, because the
 * browser's `executeTool` loses the text of errors. Tools that were registered earlier are found too.
 *
 * A classic script, because those run at once and in order, that also works as a module: it exports nothing, and imports
 * the rest when it runs. It only watches what is registered; `webmcp/model_context.js` offers it.
 */

(() => {
  /**
   * @typedef {import("./webmcp/model_context.js").Held} Held
   * @typedef {import("./webmcp/model_context.js").ModelContext} ModelContext
   * @typedef {typeof import("./webmcp/model_context.js")} Adapter
   * @typedef {typeof import("./client.js")} Client
   * @typedef {typeof import("./tabrelay.js")} Loader
   */

  const SOON_MS = 100; // a polyfill comes with the page's own scripts
  const LATER_MS = 2_000;
  const SOON_CHECKS = 100;

  const tag = document.currentScript ?? document.querySelector('script[data-server][src*="/webmcp.js"]');
  if (!(tag instanceof HTMLScriptElement) || !tag.dataset.server) {
    console.error('tabrelay: webmcp.js needs the name of a server: <script src="…/webmcp.js" data-server="notes">');
    return;
  }
  const { server, relay, token, worker, modules } = tag.dataset;
  // The loader lies beside this script, on the relay and where an app hosts both. It waits for a relay that does not run.
  const loader = new URL("./tabrelay.js", tag.src);

  /** What was registered since this script runs, by name. @type {Map<string, Held>} */
  const held = new Map();
  let changed = () => {};

  connect(waitForContext()).catch((error) => console.error("tabrelay: webmcp.js could not connect", error));

  /** @param {Promise<ModelContext>} found */
  async function connect(found) {
    const { load, RELAY } = /** @type {Loader} */ (await import(loader.href));
    const [client, adapter] = /** @type {[Client, Adapter]} */ (
      await Promise.all([load("client.js"), load("webmcp/model_context.js")])
    );
    const isHosted = loader.origin === location.origin && RELAY !== location.origin;
    const file = worker ?? (isHosted ? loader : undefined);
    const connection = client.connect({
      server: server ?? "",
      relay: relay ?? RELAY,
      ...(token ? { token } : {}),
      ...(file ? { worker: file } : {}),
      ...(modules ? { modules: modules.split(/[\s,]+/).filter(Boolean) } : {}),
    });
    // The page has no place of its own for this.
    connection.addEventListener("state", () => {
      if (connection.state.state === "stopped") console.warn(`tabrelay: ${connection.state.message}`);
    });
    const context = await found;
    changed = adapter.offerModelContext(connection, context, held);
  }

  /** The page's model context, as soon as there is one: the browser's own is there from the beginning. */
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
   * Note what comes and goes; the last three are of earlier drafts.
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
   * Do something after a method of the context has done its work, if it did.
   * @param {any} context
   * @param {string} name
   * @param {(...args: any[]) => unknown} onDone
   */
  function afterMethod(context, name, onDone) {
    const method = context[name];
    if (typeof method !== "function") return;
    const value = function (/** @type {any[]} */ ...args) {
      const answer = Reflect.apply(method, context, args);
      // Whether it was refused is for the page to see, in the answer.
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
