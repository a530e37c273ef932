/**
 * Connection of an app's page to the client that shows it (MCP Apps): `tabrelay.connect()`.
 *
 *     const view = await tabrelay.connect();
 *     view.live("counter://value", (value) => (output.textContent = value));
 *     button.onclick = () => view.callTool("add_to_counter", { by: 1 });
 *
 * The page runs in a sandbox, without access to the origin that offers the app. Messages go to the client, which forwards calls of
 * tools to the server. `live` follows a resource by calls that wait for a change. The script does nothing before `connect`, so a
 * page may use another library. It is put into the page as text: see client/apps.js.
 */
(() => {
  const PROTOCOL = "2026-01-26";
  const TOOLS_CALL = "tools/call";
  /** In results: the tab that ran the call. Later calls go to the same tab. */
  const META_TAB = "tabrelay/tab";
  const TAB_ARGUMENT = "_tab";
  /** The result of the call that shows the page names the tab; hosts send it right after the start. */
  const FIRST_RESULT_MS = 2000;
  const REQUEST_MS = 60_000;
  const FIRST_PAUSE_MS = 250;
  const LONGEST_PAUSE_MS = 5000;
  /** A client that forwards no tool calls can still read resources. */
  const POLL_MS = 1000;
  const { app: name = "app", watch } = document.currentScript?.dataset ?? {};

  /**
   * @typedef {Record<string, any>} Params
   * @typedef {{ request(method: string, params: Params): Promise<any>, canCall: boolean }} Host
   */

  /** Messages to the client that shows the page. */
  class ParentHost {
    /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void }>} */
    #waiting = new Map();
    #last = 0;
    #notified;
    canCall = true;

    /** @param {(method: string, params: Params) => void} notified */
    constructor(notified) {
      this.#notified = notified;
      addEventListener("message", (event) => {
        if (event.source === window.parent && event.data?.jsonrpc === "2.0") this.#receive(event.data);
      });
    }

    /**
     * @param {string} method
     * @param {Params} params
     * @returns {Promise<any>}
     */
    request(method, params) {
      const id = ++this.#last;
      return new Promise((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject });
        setTimeout(() => this.#end(id)?.reject(new Error(`The client did not answer ${method}.`)), REQUEST_MS);
        this.post({ id, method, params });
      });
    }

    /** @param {object} message */
    post(message) {
      window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
    }

    /** @param {number} id */
    #end(id) {
      const found = this.#waiting.get(id);
      this.#waiting.delete(id);
      return found;
    }

    /** @param {any} message */
    #receive({ id, method, params, result, error }) {
      if (method === undefined) {
        const waiting = this.#end(id);
        return error ? waiting?.reject(new Error(error.message)) : waiting?.resolve(result);
      }
      if (id === undefined) return this.#notified(method, params ?? {});
      const isKnown = method === "ping" || method === "ui/resource-teardown";
      this.post(isKnown ? { id, result: {} } : { id, error: { code: -32601, message: `Method not found: ${method}` } });
      if (method === "ui/resource-teardown") this.#notified(method, {});
    }
  }

  /** Events: "input" and "result" of the tool call that shows the page, "context" of the client. The params are in `detail`. */
  class AppView extends EventTarget {
    /** What the client says of itself and of the page's place: theme, size, locale. @type {Params} */
    context = {};
    #host;
    #closed = new AbortController();
    /** @type {string | undefined} */
    #tab;
    #hasResult = Promise.withResolvers();

    /** @param {Host} host */
    constructor(host) {
      super();
      this.#host = host;
    }

    /**
     * Handle a notification of the client.
     * @param {string} method
     * @param {Params} params
     */
    notified(method, params) {
      if (method === "ui/resource-teardown") return this.close();
      if (method === "ui/notifications/tool-result") {
        const id = params._meta?.[META_TAB]?.id;
        if (typeof id === "string") this.#tab = id;
        this.#hasResult.resolve(undefined);
        this.#dispatch("result", params);
      } else if (method === "ui/notifications/tool-input") {
        this.#dispatch("input", params.arguments ?? {});
      } else if (method === "ui/notifications/host-context-changed") {
        this.context = { ...this.context, ...params };
        this.#dispatch("context", this.context);
      }
    }

    /**
     * Call a tool of the server, in the tab that shows this app. Resolves with its result; a tool's own error has `isError`.
     * @param {string} tool
     * @param {Params} [args]
     * @returns {Promise<Params>}
     */
    callTool(tool, args = {}) {
      const named = this.#tab === undefined ? args : { ...args, [TAB_ARGUMENT]: this.#tab };
      return this.#host.request(TOOLS_CALL, { name: tool, arguments: named });
    }

    /**
     * @param {string} uri
     * @returns {Promise<Params>}
     */
    readResource(uri) {
      const _meta = this.#tab === undefined ? undefined : { [META_TAB]: this.#tab };
      return this.#host.request("resources/read", { uri, ...(_meta && { _meta }) });
    }

    /**
     * Follow a resource of the app's option `live`: `onValue` gets its value now and after each change. JSON is parsed.
     * `onError` gets the reason while it can't be read; the page tries again by itself.
     * @param {string} uri
     * @param {(value: any) => void} onValue
     * @param {(error: Error) => void} [onError]
     * @returns {() => void} stops it
     */
    live(uri, onValue, onError = (error) => console.warn(`tabrelay: ${uri}: ${error.message} [TR483]`)) {
      const stop = new AbortController();
      void this.#follow(uri, onValue, onError, AbortSignal.any([stop.signal, this.#closed.signal]));
      return () => stop.abort();
    }

    /** Stop following resources. */
    close() {
      this.#closed.abort();
    }

    /**
     * @param {string} uri
     * @param {(value: any) => void} onValue
     * @param {(error: Error) => void} onError
     * @param {AbortSignal} stopped
     */
    async #follow(uri, onValue, onError, stopped) {
      await Promise.race([this.#hasResult.promise, pause(FIRST_RESULT_MS)]);
      let version = "";
      for (let delay = FIRST_PAUSE_MS; !stopped.aborted; ) {
        const began = performance.now();
        try {
          const seen = await this.#look(uri, version);
          if (stopped.aborted) return;
          delay = FIRST_PAUSE_MS;
          if (seen.version !== version && seen.contents) {
            version = seen.version;
            onValue(valueOf(seen.contents[0]));
          } else if (performance.now() - began < POLL_MS) {
            await pause(POLL_MS);
          }
        } catch (error) {
          onError(error instanceof Error ? error : new Error(String(error)));
          await pause(delay);
          delay = Math.min(2 * delay, LONGEST_PAUSE_MS);
        }
      }
    }

    /**
     * @param {string} uri
     * @param {string} version
     */
    async #look(uri, version) {
      if (watch === undefined || !this.#host.canCall) {
        const { contents } = await this.readResource(uri);
        return { version: JSON.stringify(contents), contents };
      }
      const result = await this.callTool(watch, { uri, version });
      if (result.isError) throw new Error(result.content?.[0]?.text ?? "The resource can't be read.");
      return result.structuredContent ?? JSON.parse(result.content[0].text);
    }

    /**
     * @param {string} type
     * @param {Params} detail
     */
    #dispatch(type, detail) {
      this.dispatchEvent(new CustomEvent(type, { detail }));
    }
  }

  /**
   * Connect to the client. `app`: an `App` of @modelcontextprotocol/ext-apps that the page has connected itself.
   * @param {any} [app]
   * @returns {Promise<AppView>}
   */
  async function connect(app) {
    if (app) {
      const request = (/** @type {string} */ method, /** @type {Params} */ params) =>
        method === TOOLS_CALL ? app.callServerTool(params) : app.readServerResource(params);
      const view = new AppView({ request, canCall: true });
      for (const [event, method] of [["toolresult", "tool-result"], ["toolinput", "tool-input"]]) {
        app.addEventListener(event, (/** @type {Params} */ params) => view.notified(`ui/notifications/${method}`, params));
      }
      return view;
    }
    /** @type {AppView} */
    let view;
    const host = new ParentHost((method, params) => view.notified(method, params));
    view = new AppView(host);
    const appInfo = { name, version: "1" };
    const started = await host.request("ui/initialize", { protocolVersion: PROTOCOL, appInfo, appCapabilities: {} });
    host.canCall = started.hostCapabilities?.serverTools !== undefined;
    view.context = started.hostContext ?? {};
    host.post({ method: "ui/notifications/initialized", params: {} });
    reportSize(host);
    return view;
  }

  /** Tell the client the size of the content, now and when it changes. @param {ParentHost} host */
  function reportSize(host) {
    const root = document.documentElement;
    const report = () => {
      const params = { width: root.scrollWidth, height: Math.ceil(root.getBoundingClientRect().height) };
      host.post({ method: "ui/notifications/size-changed", params });
    };
    new ResizeObserver(report).observe(root);
  }

  /** @param {{ text?: string, mimeType?: string, blob?: string }} content */
  function valueOf({ text, mimeType = "", blob }) {
    if (text === undefined) return blob;
    return /[/+]json\b/.test(mimeType) ? JSON.parse(text) : text;
  }

  /** @param {number} ms */
  function pause(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  Object.assign(globalThis, { tabrelay: { connect } });
})();
