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
   * @typedef {import("./webmcp/context_tools.js").Held} Held
   * @typedef {import("./webmcp/context_tools.js").ModelContext} ModelContext
   * @typedef {typeof import("./webmcp/model_context.js")} Adapter
   * @typedef {typeof import("./client.js")} Client
   * @typedef {typeof import("./tabrelay.js")} Loader
   */

  const SOON_MS = 100; // a polyfill is loaded with the page's own scripts
  const LATER_MS = 2_000;
  const SOON_CHECKS = 100;

  const tag = document.currentScript ?? document.querySelector('script[data-server][src*="/webmcp.js"]');
  if (!(tag instanceof HTMLScriptElement) || !tag.dataset.server) {
    console.error('tabrelay: webmcp.js needs the name of a server: <script src="…/webmcp.js" data-server="notes"> [TR476]');
    return;
  }
  const { server, relay, token, worker, modules, panel, debugging, frames } = tag.dataset;
  const panelOption = panel ? { panel: panel !== "false" } : {};
  // The loader has the same folder as this script, on the relay and where an app hosts both. It waits until the relay runs.
  const loader = new URL("./tabrelay.js", tag.src);

  /** The tools that were registered since this script runs, by name. @type {Map<string, Held>} */
  const held = new Map();
  /** @type {WeakSet<ModelContext>} */
  const watched = new WeakSet();
  let changed = () => {};

  observeContexts();
  connect().catch((error) => console.error("tabrelay: webmcp.js could not connect [TR476]", error));

  async function connect() {
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
      ...(modules ? { modules: words(modules) } : {}),
    });
    changed = adapter.offerModelContext(connection, {
      current: currentContexts,
      held,
      debugging: debugging !== undefined && debugging !== "false",
      frames: words(frames ?? ""),
    });
  }

  /** @param {string} text */
  function words(text) {
    return text.split(/[\s,]+/).filter(Boolean);
  }

  /**
   * The page's model contexts: that of the document, and another one of the navigator, where drafts and polyfills until 2.2 had it.
   * A navigator's getter may be an alias that warns, so it is not read where the document has a context.
   */
  function currentContexts() {
    const { modelContext: ofDocument } = /** @type {{ modelContext?: ModelContext }} */ (document);
    const ofNavigator = ofDocument
      ? /** @type {ModelContext | undefined} */ (Object.getOwnPropertyDescriptor(navigator, "modelContext")?.value)
      : /** @type {{ modelContext?: ModelContext }} */ (navigator).modelContext;
    return [...new Set([ofDocument, ofNavigator])].filter((context) => context !== undefined && context !== null);
  }

  /**
   * Observe each model context from the moment when it exists, before the page can register a tool there. The browser's own exists
   * from the start. A polyfill defines a property; what assigns one is found after the script, or after some time.
   */
  function observeContexts() {
    lookForContexts();
    for (const owner of [Object, Reflect]) afterMethod(owner, "defineProperty", (_target, name) => name === "modelContext" && lookForContexts());
    document.addEventListener("load", lookForContexts, true); // of a script
    const scripts = new MutationObserver(lookForContexts); // before the next script of the parser
    scripts.observe(document, { childList: true, subtree: true });
    document.addEventListener("DOMContentLoaded", () => {
      scripts.disconnect();
      lookForContexts();
    });
    void checkSometimes();
  }

  async function checkSometimes() {
    for (let check = 0; ; check++) {
      await new Promise((resolve) => setTimeout(resolve, check < SOON_CHECKS ? SOON_MS : LATER_MS));
      lookForContexts();
    }
  }

  function lookForContexts() {
    for (const context of currentContexts()) {
      if (watched.has(context)) continue;
      watched.add(context);
      watchRegistrations(context);
      changed();
    }
  }

  /**
   * Observe registrations; the last three methods are of earlier drafts.
   * @param {ModelContext} context
   */
  function watchRegistrations(context) {
    const drop = () => held.forEach((tool, name) => tool.context === context && held.delete(name));
    afterCall(context, "registerTool", (tool, options) => keepTool(context, tool, options?.signal));
    afterCall(context, "unregisterTool", (tool) => held.delete(String(tool?.name ?? tool)));
    afterCall(context, "clearContext", drop);
    afterCall(context, "provideContext", (all) => {
      drop();
      for (const tool of all?.tools ?? []) keepTool(context, tool);
    });
  }

  /**
   * Call `onDone` after each successful call of a method of the context, when its promise is fulfilled.
   *
   * A polyfill's context may register each tool again with the context below it. The outer call ends last, so the page's function
   * is kept, and not the polyfill's.
   * @param {ModelContext} context
   * @param {string} name
   * @param {(...args: any[]) => unknown} onDone
   */
  function afterCall(context, name, onDone) {
    afterMethod(context, name, (...args) => {
      const answer = args.pop();
      // The page gets a rejection itself, in the answer.
      void Promise.resolve(answer).then(() => {
        onDone(...args);
        changed();
      }, () => {});
    });
  }

  /**
   * Call `then` after each call of a method that did not throw, with the arguments and the answer.
   * @param {any} owner
   * @param {string} name
   * @param {(...args: any[]) => unknown} then
   */
  function afterMethod(owner, name, then) {
    const method = owner[name];
    if (typeof method !== "function") return;
    const value = function (/** @type {any[]} */ ...args) {
      const answer = Reflect.apply(method, owner, args);
      then(...args, answer);
      return answer;
    };
    for (const key of ["name", "length"]) Reflect.defineProperty(value, key, { value: method[key], configurable: true });
    Reflect.defineProperty(owner, name, { value, configurable: true, writable: true });
  }

  /**
   * @param {ModelContext} context
   * @param {any} tool
   * @param {AbortSignal} [signal]
   */
  function keepTool(context, tool, signal) {
    if (signal?.aborted) return;
    const { title, description, inputSchema, outputSchema, annotations, execute } = tool;
    const kept = { name: String(tool.name), title, description, inputSchema, outputSchema, annotations, execute, context };
    held.set(kept.name, kept);
    signal?.addEventListener("abort", () => {
      if (held.get(kept.name) === kept) held.delete(kept.name);
      changed();
    }, { once: true });
  }
})();
