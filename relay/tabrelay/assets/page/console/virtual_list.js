/**
 * Virtual list: a scrolling grid of any length that keeps only the visible rows in the document.
 *
 * All rows have one height, which the style sheet gives. The list is one tab stop: arrows, Page keys, Home and End move the active
 * row, Enter opens it, and screen readers follow with `aria-activedescendant`. When the list is scrolled, rows that are added
 * above do not move what is shown. It does not know what a row contains: its owner draws rows.
 */

import { element } from "../element.js";

const OVERSCAN = 6;

/**
 * @template Item
 * @typedef {object} ListOptions
 * @property {string} label
 * @property {HTMLElement} head the row of column names
 * @property {(item: Item) => string} key
 * @property {(item: Item, node: HTMLElement) => void} draw fills the node of a row; called again when the item may have changed
 * @property {(item: Item) => void} open
 */

/** @template Item */
export class VirtualList {
  root;
  #body;
  #scroller;
  #options;
  /** @type {readonly Item[]} */
  #items = [];
  /** @type {Map<string, HTMLElement>} */
  #nodes = new Map();
  #active = "";
  #serial = 0;
  #isScheduled = false;
  #height = 0;

  /** @param {ListOptions<Item>} options */
  constructor(options) {
    this.#options = options;
    this.#body = element("div", { class: "rows", role: "rowgroup" });
    const head = element("div", { class: "head", role: "rowgroup" }, options.head);
    this.#scroller = this.root = element(
      "div",
      { class: "grid", role: "grid", tabindex: 0, "aria-label": options.label, "aria-rowcount": 0 },
      head,
      this.#body,
    );
    this.#scroller.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.#scroller.addEventListener("keydown", (event) => this.#onKey(event));
    this.#body.addEventListener("click", (event) => this.#onClick(event));
    new ResizeObserver(() => this.#schedule()).observe(this.#scroller);
  }

  /** @returns {readonly Item[]} */
  get items() {
    return this.#items;
  }

  /** @param {readonly Item[]} items */
  show(items) {
    const top = this.#scroller.scrollTop;
    const anchor = top > 0 ? this.#items[Math.floor(top / this.#rowHeight())] : undefined;
    this.#items = items;
    this.#scroller.setAttribute("aria-rowcount", String(items.length + 1));
    this.#resize();
    if (anchor) {
      const key = this.#options.key(anchor);
      const before = Math.floor(top / this.#rowHeight());
      const now = this.#indexNear(key, before);
      if (now >= 0 && now !== before) this.#scroller.scrollTop = top + (now - before) * this.#rowHeight();
    }
    this.#schedule();
  }

  /** @param {string} key what becomes the active row, and is shown */
  activate(key) {
    this.#active = key;
    const index = this.#items.findIndex((item) => this.#options.key(item) === key);
    if (index >= 0) this.#reveal(index);
    this.#schedule();
  }

  focus() {
    this.#scroller.focus();
  }

  /** Rows are added at the top, so the search begins where the row was. @param {string} key @param {number} from */
  #indexNear(key, from) {
    for (let at = from; at < this.#items.length; at++) if (this.#options.key(/** @type {Item} */ (this.#items[at])) === key) return at;
    return -1;
  }

  #rowHeight() {
    this.#height ||= Number.parseFloat(getComputedStyle(this.#scroller).getPropertyValue("--row-px")) || 32;
    return this.#height;
  }

  #resize() {
    this.#body.style.height = `${this.#items.length * this.#rowHeight()}px`;
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#height = 0;
      this.#resize();
      this.#draw();
    });
  }

  #draw() {
    const height = this.#rowHeight();
    const first = Math.max(0, Math.floor(this.#scroller.scrollTop / height) - OVERSCAN);
    const count = Math.ceil(this.#scroller.clientHeight / height) + 2 * OVERSCAN;
    /** @type {Map<string, HTMLElement>} */
    const next = new Map();
    this.#items.slice(first, first + count).forEach((item, offset) => {
      const key = this.#options.key(item);
      const node = this.#nodes.get(key) ?? element("div", { class: "line", role: "row", id: `line-${++this.#serial}`, "data-key": key });
      node.setAttribute("aria-rowindex", String(first + offset + 2));
      node.setAttribute("aria-selected", key === this.#active ? "true" : "false");
      node.style.transform = `translateY(${(first + offset) * height}px)`;
      this.#options.draw(item, node);
      next.set(key, node);
    });
    for (const [key, node] of this.#nodes) if (!next.has(key)) node.remove();
    const wanted = [...next.values()];
    wanted.forEach((node, index) => {
      if (this.#body.children[index] !== node) this.#body.insertBefore(node, this.#body.children[index] ?? null);
    });
    this.#nodes = next;
    const active = next.get(this.#active);
    if (active) this.#scroller.setAttribute("aria-activedescendant", active.id);
    else this.#scroller.removeAttribute("aria-activedescendant");
  }

  /** @param {number} index */
  #reveal(index) {
    const height = this.#rowHeight();
    const top = index * height;
    const head = this.#scroller.firstElementChild instanceof HTMLElement ? this.#scroller.firstElementChild.offsetHeight : 0;
    const space = this.#scroller.clientHeight - head;
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    else if (top + height > this.#scroller.scrollTop + space) this.#scroller.scrollTop = top + height - space;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.target !== this.#scroller || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = this.#items.findIndex((item) => this.#options.key(item) === this.#active);
    const page = Math.max(1, Math.floor(this.#scroller.clientHeight / this.#rowHeight()) - 2);
    const last = this.#items.length - 1;
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last };
    if (event.key === "Enter" || event.key === " ") {
      const item = this.#items[at];
      if (item === undefined) return;
      event.preventDefault();
      this.#options.open(item);
      return;
    }
    const next = moves[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    const item = this.#items[Math.min(last, Math.max(0, next))];
    if (item !== undefined) this.activate(this.#options.key(item));
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const node = event.target instanceof Element ? event.target.closest(".line") : null;
    const key = node instanceof HTMLElement ? node.dataset.key : undefined;
    const item = this.#items.find((each) => this.#options.key(each) === key);
    if (item === undefined || key === undefined) return;
    this.#active = key;
    this.#schedule();
    this.#options.open(item);
  }
}
