/** Parts of the page beside the spreadsheet: its tools are in sheet.py. */

import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

showExample(connect({ server: "sheet" }), {
  server: "sheet",
  files: [
    ["sheet.py", "the page and five tools, in Python"],
    ["formulas.py", "the formulas, without the page"],
    ["index.html", "its page, with PyScript by one tag"],
  ],
  example: { tool: "read_sheet", arguments: {}, prompt: "We are over the budget on my sheet. Which hotel price fits? Add a row for coffee." },
  values: { write_cells: { changes: { B3: "90", C4: "5" } }, seek: { cell: "D8", goal: 0, change: "B3" } },
});
