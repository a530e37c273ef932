/**
 * The demo's server and the tools that run in the tab: an agent draws on the canvas that the visitor draws on.
 *
 * This is the file to copy from: a page needs one call of `connect` and one of `offerTool` for each tool. The Python tools of the worker
 * are in tools.py. Files of this folder that show the page's parts offer no tools.
 */

import { connect } from "/-/client.js";
import { drawTools } from "./drawing/draw_tools.js";
import { canvasTools } from "./drawing/canvas_tools.js";
import { openDrawing } from "./drawing/shared_drawing.js";
import { HEIGHT, WIDTH } from "./drawing/shapes.js";

export const drawing = openDrawing();

export const connection = connect({
  server: "demo",
  modules: ["/-/demo/tools.py"],
  title: "Tabrelay demo",
  instructions:
    `A canvas of ${WIDTH} by ${HEIGHT} units in the user's browser tab, (0, 0) at the top left. You and the user draw on it together. ` +
    "Look at the drawing before you add to it, and draw with several small calls. undo takes back the newest step, also the user's.",
});

for (const tool of [...drawTools(drawing), ...canvasTools(drawing)]) connection.offerTool(tool);
