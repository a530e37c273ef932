/**
 * The canvas of the demo page: shows the drawing, and lets the visitor draw with mouse, finger or pen.
 *
 * A stroke becomes a step of the drawing when the pointer is lifted. A label names the client that drew last, where it drew. It has no
 * keyboard control: the same shapes can be drawn with the forms of the tools.
 */

import { byId, element, setText } from "/-/page/element.js";
import { DrawingFull, MAX_POINTS } from "./drawing.js";
import { VISITOR } from "./people.js";
import { anchor, COLORS, describe, HEIGHT, paint, WIDTH } from "./shapes.js";

/**
 * @typedef {import("./drawing.js").Drawing} Drawing
 * @typedef {import("./drawing.js").Change} Change
 * @typedef {import("./shapes.js").Color} Color
 * @typedef {import("./shapes.js").Line} Line
 * @typedef {import("./shapes.js").Point} Point
 */

const SHARPNESS = 2;
const BRUSH = 6;
/** Units between two points of a stroke, at its beginning. */
const STEP = 3;
const LABEL_MS = 2500;
const PENS = /** @type {Color[]} */ (["black", "red", "orange", "green", "blue", "purple"]);

export class CanvasView {
  #canvas = byId("canvas", HTMLCanvasElement);
  #label = byId("pen-label", HTMLElement);
  #said = byId("drawing-said", HTMLElement);
  #undo = byId("undo", HTMLButtonElement);
  #redo = byId("redo", HTMLButtonElement);
  #empty = byId("canvas-empty", HTMLElement);
  #drawing;
  #onFull;
  /** @type {Color} */
  #color = "blue";
  /** The stroke that the visitor is drawing. @type {Line | null} */
  #stroke = null;
  #step = STEP;
  #isDue = false;
  #lastStep = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #labelTimer;

  /**
   * @param {Drawing} drawing
   * @param {(message: string) => void} onFull
   */
  constructor(drawing, onFull) {
    this.#drawing = drawing;
    this.#onFull = onFull;
    this.#canvas.width = WIDTH * SHARPNESS;
    this.#canvas.height = HEIGHT * SHARPNESS;
    this.#canvas.getContext("2d")?.scale(SHARPNESS, SHARPNESS);
    byId("pens", HTMLElement).append(...PENS.map((color) => this.#pen(color)));
    this.#undo.addEventListener("click", () => drawing.undo());
    this.#redo.addEventListener("click", () => drawing.redo());
    this.#listenToPointer();
    drawing.addEventListener("change", (event) => this.#changed(/** @type {CustomEvent<Change>} */ (event).detail));
    this.#show();
  }

  /** @param {Color} color */
  #pen(color) {
    const input = element("input", { type: "radio", name: "pen", value: color, checked: color === this.#color, "aria-label": color });
    input.addEventListener("change", () => (this.#color = color));
    input.style.setProperty("--pen", COLORS[color]);
    return input;
  }

  #listenToPointer() {
    const canvas = this.#canvas;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      canvas.setPointerCapture(event.pointerId);
      this.#step = STEP;
      this.#stroke = { kind: "line", points: [this.#pointOf(event)], color: this.#color, width: BRUSH };
      this.#show();
    });
    canvas.addEventListener("pointermove", (event) => this.#extend(event));
    canvas.addEventListener("pointerup", () => this.#finish());
    canvas.addEventListener("pointercancel", () => this.#finish());
  }

  /** @param {PointerEvent} event @returns {Point} */
  #pointOf({ clientX, clientY }) {
    const { left, top, width, height } = this.#canvas.getBoundingClientRect();
    return [Math.round(((clientX - left) / width) * WIDTH), Math.round(((clientY - top) / height) * HEIGHT)];
  }

  /** @param {PointerEvent} event */
  #extend(event) {
    const points = this.#stroke?.points;
    const last = points?.at(-1);
    if (!points || !last) return;
    const next = this.#pointOf(event);
    if (Math.hypot(next[0] - last[0], next[1] - last[1]) < this.#step) return;
    points.push(next);
    // A long stroke gets coarser, and stays one stroke.
    if (points.length >= MAX_POINTS) {
      this.#step *= 2;
      points.splice(0, points.length, ...points.filter((_, index) => index % 2 === 0));
    }
    this.#show();
  }

  #finish() {
    const stroke = this.#stroke;
    this.#stroke = null;
    if (!stroke) return;
    try {
      this.#drawing.draw(VISITOR, stroke);
    } catch (error) {
      if (!(error instanceof DrawingFull)) throw error;
      this.#onFull(error.message);
      this.#show();
    }
  }

  /** @param {Change} change */
  #changed({ step, isUndone }) {
    this.#show();
    if (!step) return;
    if (step.shape && step.by !== VISITOR && !isUndone) this.#nameDrawer(step.by, anchor(step.shape));
    // A shape that grows is announced once.
    if (step.id === this.#lastStep && !isUndone) return;
    this.#lastStep = isUndone ? "" : step.id;
    const what = step.shape ? describe(step.shape) : "the whole drawing";
    if (isUndone) setText(this.#said, `Undone: ${what}.`);
    else setText(this.#said, `${step.by} ${step.shape ? "drew" : "cleared"}: ${what}.`);
  }

  /** @param {string} by @param {Point} point */
  #nameDrawer(by, [x, y]) {
    clearTimeout(this.#labelTimer);
    setText(this.#label, by);
    this.#label.style.left = `${(100 * Math.min(x, WIDTH)) / WIDTH}%`;
    this.#label.style.top = `${(100 * Math.min(y, HEIGHT)) / HEIGHT}%`;
    this.#label.hidden = false;
    this.#labelTimer = setTimeout(() => (this.#label.hidden = true), LABEL_MS);
  }

  /** Paint with the next frame, once for several changes. */
  #show() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      const context = this.#canvas.getContext("2d");
      const shapes = this.#drawing.shapes;
      if (context) paint(context, this.#stroke ? [...shapes, this.#stroke] : shapes);
      const focused = document.activeElement;
      this.#undo.disabled = !this.#drawing.canUndo;
      this.#redo.disabled = !this.#drawing.canRedo;
      // A button that is disabled would lose the focus.
      if (focused === this.#undo && this.#undo.disabled) this.#redo.focus();
      if (focused === this.#redo && this.#redo.disabled) this.#undo.focus();
      this.#empty.hidden = shapes.length > 0 || this.#stroke !== null;
    });
  }
}
