/**
 * Lanes: calls over time, one lane for each client, server or tab, with a brush that selects a time.
 *
 * A canvas draws bars of calls; buttons beside it name the lanes and filter by them. The brush is drawn with the pointer, or set by
 * keyboard: arrows move it, with Shift they change its end, Escape removes it. The selected time restricts the list. Drawing costs
 * one pass over the shown calls, at most every `DRAW_MS`.
 */

import { element, setText } from "../element.js";
import { timeText } from "./call_lines.js";
import { clientOf, isError, tabOf } from "./rows.js";

/** @typedef {import("./rows.js").Row} Row */

const DRAW_MS = 250;
const MAX_LANES = 20;
const LANE_PX = 20;
const MIN_BAR_PX = 2;
const STEPS = 40;

/** @type {Record<string, (row: Row) => string>} */
const OF = { client: clientOf, server: ({ server }) => server, tab: tabOf };

export class Lanes extends EventTarget {
  root;
  #labels = element("div", { class: "lane-labels" });
  #canvas = element("canvas", { class: "lane-canvas", tabindex: 0, role: "img", "aria-label": "Calls over time" });
  #range = element("p", { class: "hint", role: "status" });
  #by = "client";
  /** @type {readonly Row[]} */
  #rows = [];
  /** @type {[number, number] | null} */
  #brush = null;
  /** The time that the canvas shows. @type {[number, number]} */
  #span = [0, 1];
  #isScheduled = false;
  #filter;

  /** @param {(key: string, value: string) => void} filter */
  constructor(filter) {
    super();
    this.#filter = filter;
    const clear = element("button", { type: "button", class: "button is-small" }, "Whole time");
    clear.addEventListener("click", () => this.clear());
    this.root = element("div", { class: "lanes", "data-testid": "lanes" }, this.#labels, this.#canvas, element("div", { class: "row lane-tools" }, this.#range, clear));
    this.#canvas.addEventListener("pointerdown", (event) => this.#drag(event));
    this.#canvas.addEventListener("keydown", (event) => this.#onKey(event));
    new ResizeObserver(() => this.#schedule()).observe(this.root);
    // A canvas keeps the colours with which it was drawn.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#schedule());
  }

  /** @param {string} by client, server or tab */
  set by(by) {
    this.#by = by in OF ? by : "client";
    this.#schedule();
  }

  /** @param {readonly Row[]} rows that are shown, without the restriction of the brush */
  show(rows) {
    this.#rows = rows;
    if (!this.#dragging) this.#span = spanOf(rows);
    this.#schedule();
  }

  /** Select the whole time. */
  clear() {
    if (this.#brush) this.#setBrush(null);
  }

  #schedule() {
    if (this.#isScheduled || !this.root.isConnected || this.root.closest("[hidden]")) return;
    this.#isScheduled = true;
    setTimeout(() => {
      this.#isScheduled = false;
      this.#draw();
    }, DRAW_MS);
  }

  #draw() {
    const of = OF[this.#by] ?? clientOf;
    /** @type {Map<string, Row[]>} */
    const lanes = new Map();
    for (const row of this.#rows) {
      const name = of(row) || "(none)";
      const lane = lanes.get(name);
      if (lane) lane.push(row);
      else lanes.set(name, [row]);
    }
    const shown = [...lanes.entries()].sort((a, b) => b[1].length - a[1].length).slice(0, MAX_LANES);
    this.#drawLabels(shown);
    const now = Date.now();
    const width = this.#canvas.clientWidth;
    const height = Math.max(1, shown.length) * LANE_PX;
    const scale = devicePixelRatio;
    this.#canvas.width = Math.max(1, width * scale);
    this.#canvas.height = height * scale;
    this.#canvas.style.blockSize = `${height}px`;
    const context = this.#canvas.getContext("2d");
    if (!context) return;
    context.scale(scale, scale);
    const style = getComputedStyle(this.#canvas);
    // Computed colours: a canvas does not know light-dark().
    const [ok, bad, line, text] = [style.color, style.columnRuleColor, style.textDecorationColor, style.caretColor];
    shown.forEach(([, rows], index) => {
      context.fillStyle = line;
      context.fillRect(0, (index + 1) * LANE_PX - 1, width, 1);
      for (const row of rows) {
        const x = this.#x(row.started, width);
        const end = this.#x(row.started + (row.ms ?? now - row.started), width);
        context.fillStyle = isError(row) ? bad : ok;
        context.fillRect(x, index * LANE_PX + 4, Math.max(MIN_BAR_PX, end - x), LANE_PX - 8);
      }
    });
    if (this.#brush) {
      const [from, to] = this.#brush.map((time) => this.#x(time, width));
      context.globalAlpha = 0.2;
      context.fillStyle = text;
      context.fillRect(from ?? 0, 0, (to ?? 0) - (from ?? 0), height);
      context.globalAlpha = 1;
    }
    const said = this.#brush ?? this.#span;
    setText(this.#range, `${timeText(said[0])} – ${timeText(said[1])}`);
    this.#canvas.setAttribute("aria-label", `Calls of ${shown.length} ${this.#by}s from ${timeText(this.#span[0])} to ${timeText(this.#span[1])}. Arrow keys select a time.`);
  }

  /** @param {[string, Row[]][]} lanes */
  #drawLabels(lanes) {
    const key = lanes.map(([name, rows]) => `${name} ${rows.length}`).join("\n");
    if (this.#labels.dataset.key === key) return;
    this.#labels.dataset.key = key;
    this.#labels.replaceChildren(
      ...lanes.map(([name, rows]) => {
        const button = element("button", { type: "button", class: "lane-label", title: name, "data-lane": name }, element("span", { class: "lane-name" }, name), element("span", { class: "hint" }, String(rows.length)));
        button.addEventListener("click", () => this.#filter(this.#by, name === "(none)" ? "" : name));
        return button;
      }),
    );
  }

  /** @param {number} time @param {number} width */
  #x(time, width) {
    return ((time - this.#span[0]) / (this.#span[1] - this.#span[0])) * width;
  }

  #dragging = false;

  /** @param {PointerEvent} event */
  #drag(event) {
    const box = this.#canvas.getBoundingClientRect();
    const timeAt = (/** @type {number} */ x) => this.#span[0] + (Math.min(1, Math.max(0, (x - box.left) / box.width)) * (this.#span[1] - this.#span[0]));
    const from = timeAt(event.clientX);
    const startX = event.clientX;
    this.#dragging = true;
    this.#canvas.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ each) => {
      const to = timeAt(each.clientX);
      if (Math.abs(each.clientX - startX) > 3) this.#setBrush(from < to ? [from, to] : [to, from]);
    };
    const end = (/** @type {PointerEvent} */ each) => {
      this.#dragging = false;
      this.#canvas.removeEventListener("pointermove", move);
      if (Math.abs(each.clientX - startX) <= 3) this.#setBrush(null);
    };
    this.#canvas.addEventListener("pointermove", move);
    this.#canvas.addEventListener("pointerup", end, { once: true });
    this.#canvas.addEventListener("pointercancel", end, { once: true });
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape" && this.#brush) {
      event.stopPropagation();
      return this.#setBrush(null);
    }
    if (step === undefined) return;
    event.preventDefault();
    const [first, last] = this.#span;
    const size = (last - first) / STEPS;
    const [from, to] = this.#brush ?? [last - 5 * size, last];
    const bounded = (/** @type {number} */ time) => Math.min(last, Math.max(first, time));
    if (event.shiftKey) this.#setBrush([from, Math.max(from + size, bounded(to + step * size))]);
    else this.#setBrush([bounded(from + step * size), Math.max(bounded(from + step * size) + size, bounded(to + step * size))]);
  }

  /** @param {[number, number] | null} brush */
  #setBrush(brush) {
    this.#brush = brush;
    this.dispatchEvent(new CustomEvent("brush", { detail: brush }));
    this.#schedule();
  }
}

/** From the first start to the last end. @param {readonly Row[]} rows @returns {[number, number]} */
function spanOf(rows) {
  const now = Date.now();
  const start = rows[0]?.started ?? now - 1000;
  const end = rows.reduce((latest, { started, ms }) => Math.max(latest, started + (ms ?? now - started)), start + 1);
  return [start, Math.max(start + 1, end)];
}
