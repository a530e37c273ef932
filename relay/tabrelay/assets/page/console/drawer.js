/**
 * Drawer beside the page: shows one thing at a time, such as a call or a server. Escape and its button close it.
 *
 * It is not modal: the list stays usable. On opening, the focus moves to its heading if a person opened it; on closing, back to
 * what had the focus. `show` with the key that is open keeps the drawer's elements, so what was typed survives.
 */

import { element, setText } from "../element.js";

export class Drawer extends EventTarget {
  root;
  #title;
  #about;
  #body;
  #key = "";
  /** @type {Element | null} */
  #before = null;
  /** Ends what the shown content does in the background. */
  #shown = new AbortController();

  /** @param {HTMLElement} root an empty `<aside>` */
  constructor(root) {
    super();
    this.root = root;
    this.#title = element("h2", { id: "drawer-title", tabindex: -1 });
    this.#about = element("p", { class: "hint" });
    this.#body = element("div", { class: "drawer-body stack" });
    const close = element("button", { type: "button", class: "button is-quiet", "aria-label": "Close", title: "Close (Esc)" }, "✕");
    const head = element("header", { class: "drawer-head" }, element("div", {}, this.#title, this.#about), close);
    root.setAttribute("aria-labelledby", this.#title.id);
    root.replaceChildren(head, this.#body);
    close.addEventListener("click", () => this.close());
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !root.hidden && !document.querySelector("dialog[open]")) this.close();
    });
  }

  /** What is shown: `call:ID`, `server:NAME`; empty if the drawer is closed. */
  get key() {
    return this.#key;
  }

  /**
   * Open with a new content. `fill` gets the place and a signal that ends with this content.
   *
   * @param {{ key: string, title: string, about?: string, takesFocus?: boolean }} what
   * @param {(place: HTMLElement, signal: AbortSignal) => void} fill
   */
  show({ key, title, about = "", takesFocus = true }, fill) {
    this.#shown.abort();
    this.#shown = new AbortController();
    if (this.root.hidden || !this.root.contains(document.activeElement)) this.#before = document.activeElement;
    this.#key = key;
    this.describe(title, about);
    this.#body.replaceChildren();
    this.root.dataset.key = key;
    this.root.hidden = false;
    document.body.classList.add("has-drawer");
    fill(this.#body, this.#shown.signal);
    this.root.scrollTop = 0;
    if (takesFocus) this.#title.focus({ preventScroll: true });
    this.dispatchEvent(new Event("change"));
  }

  /** @param {string} title @param {string} about */
  describe(title, about) {
    setText(this.#title, title);
    setText(this.#about, about);
    this.#about.hidden = !about;
  }

  close() {
    if (this.root.hidden) return;
    this.#shown.abort();
    this.#key = "";
    this.root.hidden = true;
    this.#body.replaceChildren();
    document.body.classList.remove("has-drawer");
    if (this.#before instanceof HTMLElement && this.#before.isConnected) this.#before.focus({ preventScroll: true });
    this.dispatchEvent(new Event("change"));
  }
}
