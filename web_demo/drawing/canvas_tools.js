/**
 * Tools that read the canvas, as a list and as an image, and tools that take something back: undo, and clear, which asks first.
 *
 * The image is painted when it is asked for, so a tab in the background returns the present drawing too.
 */

import { nameOf } from "./draw_tools.js";
import { describe, HEIGHT, picture, WIDTH } from "./shapes.js";

/**
 * @typedef {import("/-/client.js").Tool} Tool
 * @typedef {import("./drawing.js").Drawing} Drawing
 */

const none = { type: "object", properties: {}, additionalProperties: false };
const count = { type: "integer", description: "How many shapes are on the canvas now" };
const listed = {
  type: "object",
  properties: {
    tab: { type: "string", description: "Title of the tab that answers" },
    width: { type: "integer" },
    height: { type: "integer" },
    shapes: {
      type: "array",
      description: "From the back to the front",
      items: {
        type: "object",
        properties: {
          step: { type: "string" },
          by: { type: "string", description: "Who drew it: the user is “You”, agents have their names" },
          what: { type: "string", description: "In words" },
          shape: { type: "object", description: "Its exact data" },
        },
        required: ["step", "by", "what", "shape"],
      },
    },
  },
  required: ["tab", "width", "height", "shapes"],
};

/** @param {Drawing} drawing @returns {Tool[]} */
export function canvasTools(drawing) {
  return [
    {
      name: "look_at_drawing",
      title: "Look at the drawing",
      description: "The canvas as an image, as the user sees it now. Use it to see what the user drew.",
      inputSchema: none,
      annotations: { readOnlyHint: true, openWorldHint: false },
      execute: () => look(drawing),
    },
    {
      name: "list_shapes",
      title: "List the shapes",
      description: "All shapes on the canvas, with who drew each of them and its exact data.",
      inputSchema: none,
      outputSchema: listed,
      annotations: { readOnlyHint: true, openWorldHint: false },
      execute: () => list(drawing),
    },
    {
      name: "undo",
      title: "Undo",
      description: "Take back the newest steps of the drawing, yours and those of the user. You and the user share one history.",
      inputSchema: {
        type: "object",
        properties: { steps: { type: "integer", minimum: 1, maximum: 20, default: 1 } },
        additionalProperties: false,
      },
      outputSchema: {
        type: "object",
        properties: { undone: { type: "array", items: { type: "string" } }, shapes: count },
        required: ["undone", "shapes"],
      },
      annotations: { readOnlyHint: false, destructiveHint: false, openWorldHint: false },
      execute: ({ steps = 1 }) => undo(drawing, steps),
    },
    {
      name: "clear_drawing",
      title: "Clear the drawing",
      description: "Delete everything on the canvas, also what the user drew. The page asks the user first. undo brings it back.",
      inputSchema: none,
      outputSchema: { type: "object", properties: { cleared: { type: "integer" } }, required: ["cleared"] },
      annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: false },
      execute: (_, context) => clear(drawing, nameOf(context)),
    },
  ];
}

/** @param {Drawing} drawing */
async function look({ shapes, visible }) {
  const { canvas } = picture(shapes);
  const image = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!image) throw new Error("The browser could not make a picture of the canvas.");
  const by = [...new Set(visible.map((step) => step.by))].join(" and ");
  return [image, shapes.length ? `${counted(shapes.length)}, drawn by ${by}.` : "The canvas is empty."];
}

/** @param {Drawing} drawing */
function list({ visible }) {
  const shapes = visible.flatMap(({ id, by, shape }) => (shape ? [{ step: id, by, what: describe(shape), shape }] : []));
  const lines = shapes.map(({ by, what }) => `${by}: ${what}`);
  const text = [shapes.length ? `${counted(shapes.length)}:` : "The canvas is empty.", ...lines].join("\n");
  const structuredContent = { tab: document.title, width: WIDTH, height: HEIGHT, shapes };
  return { content: [{ type: "text", text }], structuredContent };
}

/** @param {Drawing} drawing @param {number} steps */
function undo(drawing, steps) {
  const undone = drawing.undo(steps).map(({ shape }) => (shape ? describe(shape) : "the clearing of the canvas"));
  const shapes = drawing.shapes.length;
  const text = undone.length ? `Undone: ${undone.join("; ")}. ${counted(shapes)} left.` : "There was nothing to undo.";
  return { content: [{ type: "text", text }], structuredContent: { undone, shapes } };
}

/** @param {Drawing} drawing @param {string} by */
function clear(drawing, by) {
  const cleared = drawing.clear(by);
  const text = cleared ? `Cleared ${counted(cleared)}. undo brings ${cleared === 1 ? "it" : "them"} back.` : "The canvas was empty.";
  return { content: [{ type: "text", text }], structuredContent: { cleared } };
}

/** @param {number} shapes */
function counted(shapes) {
  return shapes === 1 ? "1 shape" : `${shapes} shapes`;
}
