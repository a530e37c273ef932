/**
 * Shapes of the demo's drawing: their types, their colours, how they are painted and described.
 *
 * Coordinates are units of a canvas of 800 by 500, whatever its size on the screen. Painting is synchronous and needs no visible
 * canvas, so a tab in the background can return a picture. This file keeps no state.
 */

export const WIDTH = 800;
export const HEIGHT = 500;
const PAPER = "#ffffff";

/** The colours by the names that tools and the toolbar use. */
export const COLORS = /** @type {const} */ ({
  black: "#1f2328",
  gray: "#7a8288",
  white: "#ffffff",
  red: "#d23f3f",
  orange: "#ef8a2b",
  yellow: "#f2c230",
  green: "#3a9a58",
  blue: "#2c6bd6",
  purple: "#7e4fc4",
  pink: "#e777ae",
  brown: "#875836",
});

/**
 * @typedef {keyof typeof COLORS} Color
 * @typedef {[x: number, y: number]} Point
 * @typedef {{ kind: "line", points: Point[], color: Color, width: number }} Line
 * @typedef {{ kind: "circle", x: number, y: number, radius: number, color: Color, filled: boolean }} Circle
 * @typedef {{ kind: "rectangle", x: number, y: number, width: number, height: number, color: Color, filled: boolean }} Rectangle
 * @typedef {{ kind: "text", x: number, y: number, text: string, size: number, color: Color }} Text
 * @typedef {Line | Circle | Rectangle | Text} Shape
 */

const OUTLINE = 5;

/**
 * @param {CanvasRenderingContext2D} context whose units are those of the drawing
 * @param {Shape[]} shapes
 * @param {string | null} [paper] the background; null: transparent
 */
export function paint(context, shapes, paper = PAPER) {
  context.clearRect(0, 0, WIDTH, HEIGHT);
  if (paper) {
    context.fillStyle = paper;
    context.fillRect(0, 0, WIDTH, HEIGHT);
  }
  context.lineCap = context.lineJoin = "round";
  for (const shape of shapes) paintShape(context, shape);
}

/** @param {CanvasRenderingContext2D} context @param {Shape} shape */
function paintShape(context, shape) {
  context.fillStyle = context.strokeStyle = COLORS[shape.color];
  context.lineWidth = shape.kind === "line" ? shape.width : OUTLINE;
  context.beginPath();
  switch (shape.kind) {
    case "line":
      // The first point again: a click without a movement is a dot.
      for (const [x, y] of [...shape.points.slice(0, 1), ...shape.points]) context.lineTo(x, y);
      context.stroke();
      break;
    case "circle":
      context.arc(shape.x, shape.y, shape.radius, 0, 2 * Math.PI);
      fillOrStroke(context, shape.filled);
      break;
    case "rectangle":
      context.rect(shape.x, shape.y, shape.width, shape.height);
      fillOrStroke(context, shape.filled);
      break;
    case "text":
      context.font = `600 ${shape.size}px ui-sans-serif, system-ui, sans-serif`;
      context.textBaseline = "alphabetic";
      context.fillText(shape.text, shape.x, shape.y);
      break;
  }
}

/** @param {CanvasRenderingContext2D} context @param {boolean} isFilled */
function fillOrStroke(context, isFilled) {
  if (isFilled) context.fill();
  else context.stroke();
}

/**
 * A canvas with these shapes, which is in no document.
 *
 * @param {Shape[]} shapes
 * @param {{ scale?: number, paper?: string | null }} [options]
 * @returns {{ canvas: HTMLCanvasElement, context: CanvasRenderingContext2D }}
 */
export function picture(shapes, { scale = 1, paper = PAPER } = {}) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(WIDTH * scale);
  canvas.height = Math.round(HEIGHT * scale);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("This browser has no 2D canvas.");
  context.scale(scale, scale);
  paint(context, shapes, paper);
  return { canvas, context };
}

/** One line about a shape, for people and models. @param {Shape} shape @returns {string} */
export function describe(shape) {
  const { color } = shape;
  switch (shape.kind) {
    case "line": {
      const [first, last] = [shape.points[0], shape.points.at(-1)];
      return `${color} line through ${shape.points.length} points, from ${place(first)} to ${place(last)}`;
    }
    case "circle":
      return `${color} circle at ${place([shape.x, shape.y])}, radius ${round(shape.radius)}`;
    case "rectangle":
      return `${color} rectangle at ${place([shape.x, shape.y])}, ${round(shape.width)} by ${round(shape.height)}`;
    case "text":
      return `${color} text “${shape.text}” at ${place([shape.x, shape.y])}`;
  }
}

/** Where on the drawing a shape ends or has its middle: for a label beside it. @param {Shape} shape @returns {Point} */
export function anchor(shape) {
  switch (shape.kind) {
    case "line":
      return shape.points.at(-1) ?? [0, 0];
    case "rectangle":
      return [shape.x + shape.width / 2, shape.y + shape.height / 2];
    default:
      return [shape.x, shape.y];
  }
}

/** @param {Point | undefined} point */
function place(point) {
  return point ? `(${round(point[0])}, ${round(point[1])})` : "nowhere";
}

/** @param {number} value */
function round(value) {
  return Math.round(value);
}
