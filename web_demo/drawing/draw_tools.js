/**
 * Tools that draw on the canvas: line, circle, rectangle, text, and a spiral that takes some seconds.
 *
 * Each returns a sentence for the model and the same as structured content. Arguments are checked against the schemas before a tool
 * runs, so the functions here get valid ones.
 */

import { OWN_CLIENT, VISITOR } from "./people.js";
import { COLORS, describe, HEIGHT, WIDTH } from "./shapes.js";

/**
 * @typedef {import("/-/client.js").Tool} Tool
 * @typedef {import("/-/client.js").CallContext} CallContext
 * @typedef {import("./drawing.js").Drawing} Drawing
 * @typedef {import("./shapes.js").Shape} Shape
 * @typedef {import("./shapes.js").Point} Point
 */

const FRAME_MS = 50;
const SPIRAL_POINTS = 180;

const x = { type: "number", minimum: 0, maximum: WIDTH, description: `From the left, 0 to ${WIDTH}` };
const y = { type: "number", minimum: 0, maximum: HEIGHT, description: `From the top, 0 to ${HEIGHT}` };
const color = { type: "string", enum: Object.keys(COLORS), default: "blue" };
const points = {
  type: "array",
  items: { type: "array", items: { type: "number" }, minItems: 2, maxItems: 2 },
  minItems: 2,
  maxItems: 200,
  description: "Points in order, each as [x, y]",
};
const filled = { type: "boolean", default: true, description: "False: only the outline" };
const outputSchema = {
  type: "object",
  properties: {
    drawn: { type: "string", description: "What was drawn, in words" },
    step: { type: "string", description: "Id of this step in the history" },
    shapes: { type: "integer", description: "How many shapes are on the canvas now" },
  },
  required: ["drawn", "step", "shapes"],
};
const annotations = { readOnlyHint: false, destructiveHint: false, openWorldHint: false };

/** @param {object} properties @param {string[]} required */
function object(properties, required) {
  return { type: "object", properties, required, additionalProperties: false };
}

/**
 * Who draws, for people: the name that the client gives itself.
 *
 * @param {CallContext} context
 */
export function nameOf({ caller }) {
  const name = caller.client?.name || "A client";
  return name === OWN_CLIENT ? VISITOR : name;
}

/** The shapes: the tools without what runs, and the values of arguments that are left out. */
const SHAPES = [
  {
    defaults: { kind: "circle", color: "blue", filled: true },
    name: "draw_circle",
    title: "Draw a circle",
    description: "Draw a circle or a disc on the canvas.",
    inputSchema: object({ x, y, radius: { type: "number", minimum: 1, maximum: 250 }, color, filled }, ["x", "y", "radius"]),
  },
  {
    defaults: { kind: "rectangle", color: "blue", filled: true },
    name: "draw_rectangle",
    title: "Draw a rectangle",
    description: "Draw a rectangle on the canvas. x and y are its top left corner.",
    inputSchema: object(
      {
        x,
        y,
        width: { type: "number", minimum: 1, maximum: WIDTH },
        height: { type: "number", minimum: 1, maximum: HEIGHT },
        color,
        filled,
      },
      ["x", "y", "width", "height"],
    ),
  },
  {
    defaults: { kind: "line", color: "blue", width: 6 },
    name: "draw_line",
    title: "Draw a line",
    description: "Draw a line through two or more points on the canvas. Close an outline by repeating the first point.",
    inputSchema: object({ points, color, width: { type: "number", minimum: 1, maximum: 60, default: 6 } }, ["points"]),
  },
  {
    defaults: { kind: "text", size: 32, color: "blue" },
    name: "write_text",
    title: "Write text",
    description: "Write one line of text on the canvas. x and y are the left end of its baseline.",
    inputSchema: object(
      {
        x,
        y,
        text: { type: "string", minLength: 1, maxLength: 80 },
        size: { type: "number", minimum: 8, maximum: 160, default: 32 },
        color,
      },
      ["x", "y", "text"],
    ),
  },
];
const SPIRAL = {
  name: "draw_spiral",
  title: "Draw a spiral slowly",
  description: "Draw a spiral from its middle, over some seconds, and report progress. It shows that long calls survive a lost connection.",
  inputSchema: object(
    {
      x,
      y,
      radius: { type: "number", minimum: 10, maximum: 250, default: 120 },
      turns: { type: "number", minimum: 1, maximum: 12, default: 5 },
      seconds: { type: "number", minimum: 0.5, maximum: 60, default: 5 },
      color,
    },
    ["x", "y"],
  ),
};

/** @param {Drawing} drawing @returns {Tool[]} */
export function drawTools(drawing) {
  const shapes = SHAPES.map(({ defaults, ...tool }) => ({
    ...tool,
    outputSchema,
    annotations,
    execute: (/** @type {any} */ args, /** @type {CallContext} */ context) => {
      const shape = /** @type {Shape} */ ({ ...defaults, ...args });
      return result(drawing, drawing.draw(nameOf(context), shape).id, shape);
    },
  }));
  return [...shapes, { ...SPIRAL, outputSchema, annotations, execute: (args, context) => drawSpiral(drawing, args, context) }];
}

/** @param {Drawing} drawing @param {string} step @param {Shape} shape */
function result(drawing, step, shape) {
  const drawn = describe(shape);
  const shapes = drawing.shapes.length;
  const text = `Drew ${/^[aeiou]/.test(drawn) ? "an" : "a"} ${drawn}. ${shapes === 1 ? "One shape is" : `${shapes} shapes are`} on the canvas.`;
  return { content: [{ type: "text", text }], structuredContent: { drawn, step, shapes } };
}

/**
 * The time, not the number of frames, says how far it is: a tab in the background gets few frames.
 *
 * @param {Drawing} drawing
 * @param {any} args
 * @param {CallContext} context
 */
async function drawSpiral(drawing, args, context) {
  const { signal, progress } = context;
  const { x: left, y: top, radius, turns, seconds, color: spiralColor } = { radius: 120, turns: 5, seconds: 5, color: "blue", ...args };
  /** @param {number} part @returns {Shape} */
  const spiral = (part) => {
    const count = Math.max(2, Math.round(part * SPIRAL_POINTS));
    const points = Array.from({ length: count }, (_, n) => {
      const at = n / (SPIRAL_POINTS - 1);
      const angle = at * turns * 2 * Math.PI;
      return /** @type {Point} */ ([Math.round(left + at * radius * Math.cos(angle)), Math.round(top + at * radius * Math.sin(angle))]);
    });
    return { kind: "line", points, color: spiralColor, width: 5 };
  };
  const { id } = drawing.draw(nameOf(context), spiral(0));
  const began = performance.now();
  let reported = 0;
  for (let part = 0; part < 1; ) {
    await new Promise((resolve) => setTimeout(resolve, FRAME_MS));
    signal.throwIfAborted();
    part = Math.min(1, (performance.now() - began) / (1000 * seconds));
    if (!drawing.redraw(id, spiral(part))) throw new Error("The spiral was undone or cleared while it was drawn.");
    const percent = Math.floor(100 * part);
    if (percent > reported) progress((reported = percent), 100);
  }
  return result(drawing, id, spiral(1));
}
