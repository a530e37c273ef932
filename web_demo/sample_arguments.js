/**
 * Example arguments for the demo's tools, and their order on the page: pressing Run several times draws a small picture.
 *
 * Each tool has a list that is used in turn. A tool without a list has the defaults of its schema, and comes last.
 */

/** @type {Record<string, Record<string, unknown>[]>} */
const SAMPLES = {
  draw_circle: [
    { x: 660, y: 105, radius: 56, color: "yellow" },
    { x: 165, y: 265, radius: 72, color: "green" },
    { x: 105, y: 318, radius: 46, color: "green" },
    { x: 232, y: 322, radius: 44, color: "green" },
    { x: 560, y: 330, radius: 26, color: "white" },
  ],
  draw_rectangle: [
    { x: 400, y: 270, width: 240, height: 160, color: "orange" },
    { x: 148, y: 330, width: 34, height: 100, color: "brown" },
    { x: 430, y: 330, width: 56, height: 100, color: "brown" },
    { x: 0, y: 430, width: 800, height: 70, color: "green" },
  ],
  draw_line: [
    { points: [[380, 272], [520, 165], [660, 272]], color: "red", width: 22 },
    { points: [[600, 200], [600, 150]], color: "gray", width: 26 },
    { points: [[60, 90], [80, 70], [100, 90], [120, 70], [140, 90]], color: "black", width: 4 },
    { points: [[200, 130], [216, 114], [232, 130], [248, 114], [264, 130]], color: "black", width: 4 },
  ],
  write_text: [
    { x: 262, y: 96, text: "Hello, agent!", size: 42, color: "purple" },
    { x: 300, y: 478, text: "drawn in this tab", size: 26, color: "white" },
  ],
  draw_spiral: [
    { x: 320, y: 220, radius: 110, turns: 5, seconds: 5, color: "purple" },
    { x: 680, y: 330, radius: 90, turns: 4, seconds: 5, color: "pink" },
  ],
  look_at_drawing: [{}],
  list_shapes: [{}],
  undo: [{ steps: 1 }],
  clear_drawing: [{}],
  add: [{ a: 2, b: 3 }],
  measure_drawing: [{}],
  find_areas: [{ limit: 5 }],
};
const ORDER = Object.keys(SAMPLES);

/** The place of a tool in lists. @param {string} tool */
export function placeOf(tool) {
  const place = ORDER.indexOf(tool);
  return place < 0 ? ORDER.length : place;
}

/**
 * @param {string} tool
 * @param {number} turn how many of the list were used
 * @returns {Record<string, unknown>}
 */
export function sampleArguments(tool, turn) {
  const samples = SAMPLES[tool];
  return samples?.[turn % samples.length] ?? {};
}
