/**
 * Page of an app (MCP Apps) in the console: a form for its tool, and the frame that shows the page with the result.
 *
 * The frame's document is `/-/page/app-frame`, which has an opaque origin and the policy that the app declares. Apps of browsers and of
 * upstreams are shown in the same way. Each request of the page is a call of the console, with a row of its own.
 */

import { element } from "../element.js";
import { RESOURCES_READ, TOOLS_CALL, TOOLS_LIST } from "../mcp_methods.js";
import { toolForm } from "../tool_form.js";
import { AppHost } from "./app_host.js";
import { askForApp } from "./relay_api.js";

const FRAME = "/-/page/app-frame";
const TYPE = "text/html;profile=mcp-app";
const READY_MS = 10_000;
const MIN_HEIGHT = 48;
const MAX_HEIGHT = 800;
const MAX_SAID = 50;
const MAX_PAGES = 50;
const META_TAB = "tabrelay/tab";

/** @typedef {import("./tool_list.js").Tool} Tool */

/** The address of the app that shows a tool's results. @param {Tool} tool @returns {string} */
function appOf({ _meta }) {
  const uri = _meta?.ui?.resourceUri ?? _meta?.["ui/resourceUri"];
  return typeof uri === "string" && uri.startsWith("ui://") ? uri : "";
}

/**
 * A button that opens the app below its tool; null if the tool has none.
 *
 * @param {string} server
 * @param {Tool} tool
 * @param {() => HTMLElement | null} place
 */
export function appButton(server, tool, place) {
  if (!appOf(tool)) return null;
  const button = element("button", { type: "button", class: "button is-small", "aria-expanded": "false" }, "Show app");
  /** @type {{ root: HTMLElement, close: () => void } | null} */
  let shown = null;
  button.addEventListener("click", () => {
    if (shown) {
      shown.close();
      shown.root.remove();
      shown = null;
    } else {
      shown = appPart(server, tool);
      place()?.append(shown.root);
    }
    button.setAttribute("aria-expanded", String(shown !== null));
    button.textContent = shown ? "Close app" : "Show app";
  });
  return button;
}

/** @param {string} server @param {Tool} tool */
function appPart(server, tool) {
  const fields = toolForm(tool.inputSchema);
  const status = element("p", { class: "hint", role: "status" });
  const stage = element("div", { class: "stack is-close" });
  const form = element("form", { class: "stack is-close", novalidate: true }, fields.element, element("div", { class: "row" }, element("button", { type: "submit", class: "button is-primary" }, "Run and show")), status);
  const root = element("div", { class: "stack app", "data-testid": "app" }, form, stage);
  let ended = new AbortController();
  const close = () => ended.abort();
  const show = async (/** @type {Record<string, unknown>} */ args) => {
    close();
    const { signal } = (ended = new AbortController());
    stage.replaceChildren();
    status.textContent = "Running.";
    try {
      await showApp(stage, server, tool, args, ended);
      if (!signal.aborted) status.textContent = "";
    } catch (error) {
      if (!signal.aborted) status.textContent = error instanceof Error ? error.message : String(error);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const args = fields.read();
    if (args) void show(args);
  });
  if (!Object.keys(tool.inputSchema?.properties ?? {}).length) void show({});
  return { root, close };
}

/**
 * @param {HTMLElement} stage
 * @param {string} server
 * @param {Tool} tool
 * @param {Record<string, unknown>} args
 * @param {AbortController} end ends the app
 */
async function showApp(stage, server, tool, args, end) {
  const { signal } = end;
  const request = (/** @type {string} */ method, /** @type {Record<string, any>} */ { _meta, ...params }) => {
    const tab = _meta?.[META_TAB];
    return askForApp({ server, method, params, ...(typeof tab === "string" && { tab }) }, signal);
  };
  const tools = await allTools(request);
  const { contents = [] } = await request(RESOURCES_READ, { uri: appOf(tool) });
  const content = contents[0];
  if (content?.mimeType !== TYPE) throw new Error(`The app's page is ${content?.mimeType ?? "missing"}, and not ${TYPE}.`);
  const html = content.text ?? new TextDecoder().decode(Uint8Array.from(atob(content.blob ?? ""), (character) => character.charCodeAt(0)));
  const result = await request(TOOLS_CALL, { name: tool.name, arguments: args });
  const csp = content._meta?.ui?.csp;
  const frame = element("iframe", {
    class: "app-frame",
    title: `App ${tool.title ?? tool.name}`,
    sandbox: "allow-scripts allow-forms",
    src: `${FRAME}${csp ? `?csp=${encodeURIComponent(JSON.stringify(csp))}` : ""}`,
    height: 200,
  });
  const said = element("ul", { class: "list app-said" });
  const ready = Promise.withResolvers();
  /** @type {AppHost | null} */
  let host = null;
  const receive = (/** @type {MessageEvent} */ event) => {
    if (!frame.isConnected) return end.abort();
    if (event.source !== frame.contentWindow) return;
    if (event.data?.tabrelay === "frame-ready") ready.resolve(undefined);
    else void host?.receive(event.data);
  };
  addEventListener("message", receive);
  signal.addEventListener("abort", () => {
    host?.tearDown();
    removeEventListener("message", receive);
  });
  stage.replaceChildren(frame, said);
  setTimeout(() => ready.reject(new Error("The app's frame does not start.")), READY_MS);
  await ready.promise;
  if (signal.aborted || !frame.contentWindow) return;
  host = new AppHost(frame.contentWindow, tools, {
    request,
    said: (text, link) => {
      const line = element("li", {}, link ? `${text} ` : text, link ? element("a", { href: link, target: "_blank", rel: "noreferrer noopener" }, link) : null);
      said.append(line);
      while (said.childElementCount > MAX_SAID) said.firstElementChild?.remove();
    },
    sized: (height) => (frame.height = String(Math.min(Math.max(height, MIN_HEIGHT), MAX_HEIGHT))),
  });
  frame.contentWindow.postMessage({ html }, "*");
  await host.started;
  host.notify("ui/notifications/tool-input", { arguments: args });
  host.notify("ui/notifications/tool-result", result);
}

/** @param {(method: string, params: Record<string, any>) => Promise<Record<string, any>>} request */
async function allTools(request) {
  /** @type {Tool[]} */
  const found = [];
  let cursor;
  for (let page = 0; page < MAX_PAGES; page++) {
    const { tools = [], nextCursor } = await request(TOOLS_LIST, cursor ? { cursor } : {});
    found.push(...tools);
    if (!nextCursor) break;
    cursor = nextCursor;
  }
  return found;
}
