/**
 * Example of an app on another origin than the relay's. It hosts the relay's loader, tabrelay.js, which contains the relay's
 * address and retries until the relay runs. Browsers start shared workers only from the page's origin, so the loader is the
 * worker's file too.
 *
 * `tabrelay demo` serves this folder on a port next to its own. To serve it yourself:
 *
 *     tabrelay serve notes
 *     python3 -m http.server 8000 --directory web_demo/examples/cross_origin
 *
 * Open http://localhost:8000. The first time, the page asks to be paired: compare its code with the one in the terminal.
 */

import { load, RELAY } from "./tabrelay.js";

const note = /** @type {HTMLTextAreaElement} */ (document.querySelector("#note"));
const status = /** @type {HTMLElement} */ (document.querySelector("#status"));
const ways = /** @type {HTMLElement} */ (document.querySelector("#try"));

for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("a[data-relay]"))) {
  link.href = `${RELAY}${link.dataset.relay}`;
}
load("status.js", { panel: false }); // defines <tabrelay-status>
load().then(offerNote);

/** @param {typeof import("/-/client.js")} client */
function offerNote({ connect }) {
  const connection = connect({ server: "notes", worker: "tabrelay.js" });

  connection.addEventListener("state", ({ detail }) => {
    ways.hidden = detail.state !== "connected";
    status.textContent = detail.state === "connected" ? "MCP clients reach this page as “notes”." : detail.message;
  });

  connection.offerTool({
    name: "read_note",
    description: "The current text of the note.",
    annotations: { readOnlyHint: true },
    execute: () => note.value,
  });

  connection.offerTool({
    name: "append_to_note",
    description: "Add a line to the note.",
    inputSchema: { type: "object", properties: { line: { type: "string" } }, required: ["line"] },
    execute({ line }) {
      note.value += `\n${line}`;
      return "Added.";
    },
  });
}
