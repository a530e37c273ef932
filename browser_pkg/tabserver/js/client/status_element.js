/**
 * Element `<tabrelay-status>`: state of the page's connection for an app's header, with *Connect* and *Why not?*.
 *
 * It listens for "state", so the connection shows no panel of its own. It makes no connection: it shows the one of its attribute
 * `server`, or the page's first one. All texts are text nodes in a shadow root, which apps style with custom properties and
 * `::part()`. The words are in `status_text.js`, the style sheet in `status_style.js`.
 *
 * @import { Connection } from "./connection.js"
 * @import { StatusText } from "./status_text.js"
 */

import { OPENED, connections, findConnection } from "./page_connections.js";
import { STATUS_STYLE } from "./status_style.js";
import { describeStatus } from "./status_text.js";
import { append } from "./text_elements.js";

const COPIED_MS = 1_600;
/** Space between the details and the edge of the window, in CSS pixels. */
const MARGIN = 8;
const EVENTS = ["state", "boot", "catalogue"];

// A server that renders pages has no HTMLElement; it may import this file.
const Base = globalThis.HTMLElement ?? /** @type {typeof HTMLElement} */ (/** @type {unknown} */ (class {}));

export class StatusElement extends Base {
  static observedAttributes = ["server"];

  /** @type {Connection | undefined} */
  #given;
  /** @type {Connection | undefined} */
  #connection;
  #address = "";
  #parts = makeParts();
  #listening = new AbortController();
  /** What the details are about; empty: they are closed. @type {"" | "reason" | "client"} */
  #open = "";

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    // A constructed style sheet, because a page's content security policy may forbid style elements.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STATUS_STYLE);
    root.adoptedStyleSheets = [sheet];
    root.append(this.#parts.root);
    const { action, why, client, copy } = this.#parts;
    action.addEventListener("click", () => this.#act());
    why.addEventListener("click", () => this.#toggle("reason"));
    client.addEventListener("click", () => this.#toggle("client"));
    copy.addEventListener("click", () => void this.#copy());
    root.addEventListener("keydown", (event) => this.#onKey(/** @type {KeyboardEvent} */ (event)));
  }

  connectedCallback() {
    // A property that was set before the element was defined hides the accessor.
    if (Object.hasOwn(this, "connection")) {
      const { connection } = this;
      delete (/** @type {{ connection?: unknown }} */ (this).connection);
      this.connection = connection;
    }
    const { signal } = (this.#listening = new AbortController());
    addEventListener(OPENED, () => this.#find(), { signal });
    addEventListener("pointerdown", (event) => event.composedPath().includes(this) || this.#close(), { signal });
    this.#connection = undefined;
    this.#find();
  }

  disconnectedCallback() {
    this.#listening.abort();
    this.#close();
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#find();
  }

  /** The connection that is shown. By default the one of the attribute `server`, or the page's first. */
  get connection() {
    return this.#given ?? this.#connection ?? null;
  }

  set connection(connection) {
    this.#given = connection ?? undefined;
    if (this.isConnected) this.#find();
  }

  #find() {
    const server = this.getAttribute("server");
    const found = this.#given ? [...connections].find(([, each]) => each === this.#given) : findConnection(server);
    const connection = this.#given ?? found?.[1];
    this.#address = found?.[0] ?? "";
    if (connection && connection !== this.#connection) {
      this.#connection = connection;
      const { signal } = this.#listening;
      const draw = () => connection === this.#connection && this.#draw();
      for (const event of EVENTS) connection.addEventListener(event, draw, { signal });
    }
    this.#draw();
  }

  #describe() {
    return describeStatus(this.#connection, this.getAttribute("server") ?? "");
  }

  #draw() {
    const text = this.#describe();
    const { lamp, label, server, tabs, action, why, client } = this.#parts;
    const isConnected = text.lamp === "ok";
    this.setAttribute("state", this.#connection?.state.state ?? "none");
    lamp.dataset.lamp = text.lamp;
    setText(label, text.label);
    setText(server, text.server);
    setText(tabs, text.tabs);
    setText(action, text.action);
    action.hidden = !text.action;
    setText(why, isConnected ? "Details" : "Why not?");
    why.hidden = !text.reason;
    client.hidden = !isConnected || !this.#address;
    if ((this.#open === "reason" && why.hidden) || (this.#open === "client" && client.hidden)) this.#close();
    this.#fill(text);
  }

  /** @param {StatusText} text */
  #fill({ reason }) {
    const { details, happened, todo, help, address, copy, link, why, client } = this.#parts;
    const isClient = this.#open === "client";
    details.hidden = !this.#open;
    why.setAttribute("aria-expanded", String(this.#open === "reason"));
    client.setAttribute("aria-expanded", String(isClient));
    if (!this.#open) return;
    details.setAttribute("aria-label", isClient ? "Connect a client" : "Why not?");
    setText(happened, isClient ? "MCP clients reach this page at:" : (reason?.happened ?? ""));
    setText(todo, isClient ? "" : (reason?.todo ?? ""));
    setText(help, isClient || !reason?.help ? "" : `Help: tabrelay help ${reason.help}`);
    setText(address, isClient ? this.#address : "");
    for (const part of [address, copy, link]) part.hidden = !isClient;
    link.href = this.#address;
  }

  /** @param {"reason" | "client"} what */
  #toggle(what) {
    this.#open = this.#open === what ? "" : what;
    this.#fill(this.#describe());
    if (this.#open) this.#place();
  }

  #close() {
    this.#open = "";
    this.#fill(this.#describe());
  }

  /** Keep the details inside the window, wherever in the header the element is. */
  #place() {
    const { details } = this.#parts;
    details.style.translate = "";
    const { left, right } = details.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const shift = Math.max(MARGIN - left, 0) - Math.max(right - (width - MARGIN), 0);
    if (shift) details.style.translate = `${shift}px`;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== "Escape" || !this.#open) return;
    event.stopPropagation();
    const opener = this.#open === "client" ? this.#parts.client : this.#parts.why;
    this.#close();
    opener.focus();
  }

  #act() {
    const { remedy } = this.#describe();
    const connection = this.#connection;
    // An app that connects only when its user wants it calls connect() in a listener.
    const goesOn = this.dispatchEvent(new CustomEvent("connect", { bubbles: true, composed: true, cancelable: true }));
    if (!goesOn) return;
    if (remedy === "reload") return location.reload();
    if (connection) return connection.retry();
    if (this.#connection) return;
    this.#open = "reason";
    this.#draw();
    this.#place();
  }

  async #copy() {
    const { address, copy } = this.#parts;
    try {
      await navigator.clipboard.writeText(this.#address);
      setText(copy, "Copied");
      setTimeout(() => setText(copy, "Copy"), COPIED_MS);
    } catch {
      // No clipboard on this page: the user copies the selected text.
      getSelection()?.selectAllChildren(address);
    }
  }
}

/**
 * A text that is the same stays untouched, so that a screen reader does not announce it again.
 * @param {HTMLElement} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function makeParts() {
  const root = document.createElement("div");
  root.className = "row";
  root.setAttribute("part", "row");
  const lamp = part(root, "span", "lamp");
  lamp.setAttribute("aria-hidden", "true");
  const status = part(root, "span", "status");
  status.setAttribute("role", "status");
  const [label, server, tabs] = [part(status, "span", "label"), part(status, "span", "server"), part(status, "span", "tabs")];
  const [action, client, why] = [button(root, "", "connect"), button(root, "Connect a client", "client"), button(root, "", "why")];
  const details = part(root, "div", "details");
  details.setAttribute("role", "group");
  details.id = "details";
  for (const opener of [why, client]) opener.setAttribute("aria-controls", details.id);
  const [happened, todo, help] = [part(details, "p", "happened"), part(details, "p", "todo"), part(details, "p", "help")];
  const address = part(details, "code", "address");
  const row = append(details, "div");
  row.className = "actions";
  const copy = button(row, "Copy", "copy");
  const link = /** @type {HTMLAnchorElement} */ (part(row, "a", "link"));
  link.textContent = "Instructions for each client";
  link.target = "_blank";
  link.rel = "noreferrer";
  return { root, lamp, label, server, tabs, action, client, why, details, happened, todo, help, address, copy, link };
}

/**
 * @param {HTMLElement} parent
 * @param {string} tag
 * @param {string} name
 */
function part(parent, tag, name) {
  const element = append(parent, tag);
  element.className = name;
  element.setAttribute("part", name);
  return element;
}

/**
 * @param {HTMLElement} parent
 * @param {string} text
 * @param {string} name
 */
function button(parent, text, name) {
  const element = /** @type {HTMLButtonElement} */ (part(parent, "button", name));
  element.type = "button";
  element.textContent = text;
  element.setAttribute("part", `button ${name}`);
  return element;
}
