/**
 * The demo's server, and its JavaScript tools, which run in the tab.
 *
 * This is the file to copy from: a page needs one call of `connect` and one of `offerTool` per tool. The other files of this
 * folder draw the demo page, or do the same in Python.
 */

import { connect } from "/-/client.js";

export const connection = connect({ server: "demo", modules: ["/-/demo/tools.py"] });

connection.offerTool({
  name: "page_info",
  title: "Page info",
  description: "Title, address, size and visibility of the page. Runs in JavaScript, in the tab.",
  inputSchema: { type: "object", properties: {}, additionalProperties: false },
  annotations: { readOnlyHint: true },
  execute: () => ({
    title: document.title,
    url: location.origin + location.pathname,
    viewport: { width: innerWidth, height: innerHeight },
    visible: document.visibilityState === "visible",
    language: navigator.language,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
  }),
});
