/**
 * The drawing of all tabs of this browser: kept in the storage, sent to other tabs, and read by Python in the worker.
 *
 * Tabs send their whole version over a BroadcastChannel, and the higher revision wins. Python asks for the picture on the same
 * channel, as rows of cells. Nothing goes to the relay: agents see the drawing only through the tools.
 */

import { Drawing } from "./drawing.js";
import { COLORS, HEIGHT, picture, WIDTH } from "./shapes.js";

/** Also in tools.py. */
const CHANNEL = "tabrelay-demo-drawing";
const STORED = "tabrelay-demo-drawing";
const SEND_EVERY_MS = 60;
/** Units of the drawing for each cell of the picture that Python gets. */
const CELL = 8;
/** A cell without a shape, and the colours, as characters. */
const EMPTY = ".";
const CHARACTERS = "abcdefghijk";
const OPAQUE = 128;

/** @typedef {import("./drawing.js").Change} Change */
/** @typedef {import("./shapes.js").Color} Color */

/** @returns {Drawing} */
export function openDrawing() {
  const drawing = new Drawing();
  const channel = new BroadcastChannel(CHANNEL);
  drawing.load(stored());

  let isDue = false;
  function share() {
    if (!isDue) return;
    isDue = false;
    channel.postMessage(JSON.stringify({ version: drawing.version }));
    try {
      localStorage.setItem(STORED, JSON.stringify(drawing.version));
    } catch {
      // Without storage the drawing lasts as long as a tab of it is open.
    }
  }
  function shareSoon() {
    if (isDue) return;
    isDue = true;
    setTimeout(share, SEND_EVERY_MS);
  }
  drawing.addEventListener("change", (event) => {
    if (/** @type {CustomEvent<Change>} */ (event).detail.isOwn) shareSoon();
  });
  addEventListener("pagehide", share);

  channel.addEventListener("message", ({ data }) => {
    const message = JSON.parse(data);
    if (message.version) drawing.load(message.version);
    if (message.ask) channel.postMessage(JSON.stringify({ answer: message.ask, ...cells(drawing) }));
    // A new tab without storage asks for the drawing.
    if (message.hello && drawing.version.revision) shareSoon();
  });
  channel.postMessage(JSON.stringify({ hello: true }));
  return drawing;
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(STORED) ?? "null");
  } catch {
    return null;
  }
}

/**
 * The picture as rows of characters, one for each cell.
 *
 * @param {Drawing} drawing
 */
export function cells({ shapes }) {
  const { canvas, context } = picture(shapes, { scale: 1 / CELL, paper: null });
  const { data, width, height } = context.getImageData(0, 0, canvas.width, canvas.height);
  const palette = /** @type {[Color, number[]][]} */ (
    [...new Set(shapes.map(({ color }) => color))].map((color) => [color, rgb(COLORS[color])])
  );
  const rows = [];
  for (let y = 0; y < height; y++) {
    let row = "";
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x);
      row += (data[at + 3] ?? 0) < OPAQUE ? EMPTY : nearest([...data.subarray(at, at + 3)], palette);
    }
    rows.push(row);
  }
  return { width: WIDTH, height: HEIGHT, cell: CELL, rows, colors: Object.fromEntries(palette.map(([name], n) => [CHARACTERS[n], name])) };
}

/** The letter of the nearest colour: edges of shapes are blended. @param {number[]} pixel @param {[Color, number[]][]} palette */
function nearest(pixel, palette) {
  let best = 0;
  let least = Infinity;
  palette.forEach(([, color], index) => {
    const distance = color.reduce((sum, part, n) => sum + (part - (pixel[n] ?? 0)) ** 2, 0);
    if (distance < least) [best, least] = [index, distance];
  });
  return CHARACTERS[best] ?? EMPTY;
}

/** @param {string} hex `#rrggbb` */
function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
