/**
 * Host of one app (MCP Apps): answers the messages of its page, and carries its requests to its server.
 *
 * The page is in a frame without an origin, so messages are distinguished by their window. It may call tools of its own server that are
 * for apps, read its resources, and nothing else. What it wants to say to a model, and links that it wants to open, are shown to the
 * person instead. Elements are made in `app_part.js`.
 */

import {
  LOG_MESSAGE,
  PROMPTS_LIST,
  RESOURCES_LIST,
  RESOURCES_READ,
  RESOURCES_TEMPLATES_LIST,
  TOOLS_CALL,
} from "../mcp_methods.js";

const PROTOCOL = "2026-01-26";
const METHOD_NOT_FOUND = -32601;
const FAILED = -32000;
/** Requests of a page that run at the same time. */
const MAX_RUNNING = 32;
const LISTS = new Set([RESOURCES_LIST, RESOURCES_TEMPLATES_LIST, PROMPTS_LIST]);

/**
 * @typedef {Record<string, any>} Params
 *
 * @typedef {object} AppActions
 * @property {(method: string, params: Params) => Promise<Params>} request at the server; its result
 * @property {(text: string, link?: string) => void} said by the page, for the person
 * @property {(height: number) => void} sized
 */

export class AppHost {
  #window;
  #tools;
  #actions;
  #running = 0;
  #lastId = 0;
  /** @type {() => void} */
  #initialized = () => undefined;
  /** The page has started. */
  started = new Promise((resolve) => (this.#initialized = () => resolve(undefined)));

  /**
   * @param {Window} window of the frame
   * @param {Params[]} tools of the server, with those for apps only
   * @param {AppActions} actions
   */
  constructor(window, tools, actions) {
    this.#window = window;
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#actions = actions;
  }

  /** @param {string} method @param {Params} params */
  notify(method, params) {
    this.#post({ method, params });
  }

  /** The frame is about to be removed. */
  tearDown() {
    this.#post({ id: `host-${++this.#lastId}`, method: "ui/resource-teardown", params: {} });
  }

  /** @param {any} message of the page */
  async receive(message) {
    if (message?.jsonrpc !== "2.0" || typeof message.method !== "string") return;
    const { id, method, params = {} } = message;
    if (id === undefined || id === null) return this.#notified(method, params);
    try {
      if (this.#running >= MAX_RUNNING) throw new Error(`The app has ${MAX_RUNNING} requests already.`);
      this.#running++;
      try {
        this.#post({ id, result: await this.#answer(method, params) });
      } finally {
        this.#running--;
      }
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.#post({ id, error: { code: error instanceof UnknownMethod ? METHOD_NOT_FOUND : FAILED, message: text } });
    }
  }

  /** @param {string} method @param {Params} params */
  #notified(method, params) {
    if (method === "ui/notifications/initialized") this.#initialized();
    if (method === "ui/notifications/size-changed" && Number.isFinite(params.height)) this.#actions.sized(params.height);
    if (method === LOG_MESSAGE) this.#actions.said(`Log (${params.level}): ${textOf(params.data)}`);
  }

  /** @param {string} method @param {Params} params @returns {Promise<Params>} */
  async #answer(method, params) {
    if (method === "ui/initialize") return this.#about();
    if (method === "ping") return {};
    if (method === TOOLS_CALL) return this.#callTool(params);
    if (method === RESOURCES_READ) return this.#actions.request(method, { uri: params.uri, ...(params._meta && { _meta: params._meta }) });
    if (LISTS.has(method)) return this.#actions.request(method, params.cursor ? { cursor: params.cursor } : {});
    if (method === "ui/request-display-mode") return { mode: "inline" };
    if (method === "ui/message") this.#actions.said(`Message to the model: ${blocksText(params.content)}`);
    else if (method === "ui/update-model-context") this.#actions.said(`For the model: ${blocksText(params.content) || textOf(params.structuredContent)}`);
    else if (method === "ui/open-link") this.#openLink(String(params.url));
    else throw new UnknownMethod(`Method not found: ${method}`);
    return {};
  }

  #about() {
    const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    return {
      protocolVersion: PROTOCOL,
      hostInfo: { name: "Tabrelay console", version: "1" },
      hostCapabilities: { serverTools: {}, serverResources: {}, openLinks: {}, logging: {} },
      hostContext: { theme, displayMode: "inline", availableDisplayModes: ["inline"], locale: navigator.language, platform: "web" },
    };
  }

  /** @param {Params} params */
  async #callTool({ name, arguments: args = {} }) {
    const tool = this.#tools.get(name);
    const visibility = tool?._meta?.ui?.visibility ?? ["model", "app"];
    // defence: tools that are not for the page of an app
    if (!tool || !visibility.includes("app")) throw new Error(`This app has no tool "${name}".`);
    return this.#actions.request(TOOLS_CALL, { name, arguments: args });
  }

  /** @param {string} url */
  #openLink(url) {
    if (!/^https?:\/\//u.test(url) || !URL.canParse(url)) throw new Error("Only links to web pages can be opened.");
    this.#actions.said("The app wants to open", new URL(url).href);
  }

  /** @param {object} message */
  #post(message) {
    this.#window.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }
}

class UnknownMethod extends Error {}

/** @param {unknown} content */
function blocksText(content) {
  const blocks = Array.isArray(content) ? content : content ? [content] : [];
  return blocks.map((block) => (block?.type === "text" ? String(block.text) : `[${block?.type}]`)).join("\n").slice(0, 2000);
}

/** @param {unknown} value */
function textOf(value) {
  return (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).slice(0, 2000);
}
