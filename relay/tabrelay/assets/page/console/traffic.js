/**
 * Live traffic: the list of calls with filter, pause and counts, fed by the store.
 *
 * It draws at most once for each frame. While it is paused the store goes on; the list stays as it is. While the page is hidden
 * nothing is drawn.
 */

import { byId, duration, setText } from "../element.js";
import { drawLine, headLine, linesOf } from "./call_lines.js";
import { isError, isOpen } from "./rows.js";
import { quantile } from "./server_stats.js";
import { VirtualList } from "./virtual_list.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./call_lines.js").Line} Line
 */

const TICK_MS = 1000;

export class Traffic extends EventTarget {
  #store;
  #filterBar;
  #list;
  #isPaused = false;
  #isScheduled = false;
  /** What a brush in the lanes selects. @type {((row: Row) => boolean) | null} */
  #brush = null;
  /** What the filter keeps. @type {Row[]} */
  #filtered = [];
  /** @type {Row[]} */
  #shown = [];
  #count = byId("calls-count", HTMLElement);
  #empty = byId("calls-empty", HTMLElement);

  /**
   * @param {import("./call_store.js").CallStore} store
   * @param {import("./filter_bar.js").FilterBar} filterBar
   * @param {(row: Row) => void} open
   */
  constructor(store, filterBar, open) {
    super();
    this.#store = store;
    this.#filterBar = filterBar;
    /** @type {VirtualList<Line>} */
    this.#list = new VirtualList({
      label: "Calls",
      head: headLine(),
      key: ({ row }) => row.id,
      draw: (line, node) => drawLine(line, node, Date.now()),
      open: ({ row }) => open(row),
    });
    this.#list.root.id = "calls-list";
    this.#list.root.dataset.testid = "calls";
    byId("calls-place", HTMLElement).replaceChildren(this.#list.root);
    byId("filter-place", HTMLElement).replaceChildren(filterBar.root);
    this.#makeButtons();
    store.addEventListener("change", () => this.#schedule());
    filterBar.addEventListener("change", () => this.#schedule());
    document.addEventListener("visibilitychange", () => this.#schedule());
    setInterval(() => this.#shown.some(isOpen) && this.#schedule(), TICK_MS);
    this.#schedule();
  }

  /** Rows that the filter and the brush keep, the oldest first. @returns {readonly Row[]} */
  get shown() {
    return this.#shown;
  }

  /** Rows that the filter keeps, whatever the brush selects. @returns {readonly Row[]} */
  get filtered() {
    return this.#filtered;
  }

  /** @param {((row: Row) => boolean) | null} brush */
  setBrush(brush) {
    this.#brush = brush;
    this.#schedule();
  }

  /** @param {string} id */
  activate(id) {
    this.#list.activate(id);
  }

  focus() {
    this.#list.focus();
  }

  #makeButtons() {
    const pause = byId("calls-pause", HTMLButtonElement);
    pause.addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      pause.setAttribute("aria-pressed", String(this.#isPaused));
      setText(pause, this.#isPaused ? "Go on" : "Pause");
      this.#schedule();
    });
    byId("calls-clear", HTMLButtonElement).addEventListener("click", () => {
      this.#store.clear();
      this.#brush = null;
      this.#isPaused = false;
      pause.setAttribute("aria-pressed", "false");
      setText(pause, "Pause");
    });
  }

  #schedule() {
    if (this.#isScheduled || document.hidden) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      if (!this.#isPaused) this.#draw();
    });
  }

  #draw() {
    const { filter } = this.#filterBar;
    const now = Date.now();
    const brush = this.#brush;
    this.#filtered = this.#store.rows.filter((row) => filter.matches(row, now));
    this.#shown = brush ? this.#filtered.filter(brush) : this.#filtered;
    this.#list.show(linesOf(this.#shown));
    this.#list.root.dataset.filter = filter.text;
    setText(this.#count, countText(this.#shown, this.#store.size));
    this.#empty.hidden = this.#shown.length > 0;
    setText(this.#empty, this.#store.size ? "No call matches the filter." : "No calls yet. Calls of clients appear here as they happen.");
    this.dispatchEvent(new Event("drawn"));
  }
}

/** @param {readonly Row[]} shown @param {number} all */
function countText(shown, all) {
  const ended = shown.filter(({ ms, kind }) => ms !== null && kind !== "listen").map(({ ms }) => ms ?? 0).sort((a, b) => a - b);
  const parts = [shown.length === all ? `${all} ${all === 1 ? "call" : "calls"}` : `${shown.length} of ${all} calls`];
  const running = shown.filter(isOpen).length;
  const errors = shown.filter(isError).length;
  if (running) parts.push(`${running} running`);
  if (errors) parts.push(`${errors} ${errors === 1 ? "error" : "errors"}`);
  if (ended.length) parts.push(`p50 ${duration(quantile(ended, 0.5))}`, `p95 ${duration(quantile(ended, 0.95))}`, `p99 ${duration(quantile(ended, 0.99))}`);
  return parts.join(" · ");
}

/** What the page says of calls that were not captured. @param {{ dropped: number, why: string }} sampled */
export function sampledText({ dropped, why }) {
  const what = `${dropped} ${dropped === 1 ? "call is" : "calls are"} not shown`;
  return why === "slow" ? `${what}: this page did not read fast enough.` : `${what}: more calls came than the relay captures in a second.`;
}

