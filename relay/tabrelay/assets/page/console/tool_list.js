/**
 * Tools of a server as the drawer lists them: name, title, description, hints, and the definition as a tree.
 *
 * Until the server's own list is read, the names and descriptions of the relay's status are shown. Each tool has buttons of its
 * owner, such as one that opens the form to try it.
 */

import { element } from "../element.js";
import { jsonTree } from "./json_tree.js";
import { tokensOf } from "./token_estimate.js";

/**
 * @typedef {{ name: string, title?: string, description?: string, inputSchema?: Record<string, any>, annotations?: Record<string, any> } & Record<string, any>} Tool
 */

/** Hints of a tool that people want to see. @type {[name: string, text: string, look: string][]} */
const HINTS = [
  ["destructiveHint", "destructive", "is-warn"],
  ["readOnlyHint", "reads only", ""],
  ["idempotentHint", "idempotent", ""],
  ["openWorldHint", "open world", ""],
];

/**
 * @param {HTMLElement} place
 * @param {Tool[]} tools
 * @param {(tool: Tool) => (HTMLElement | null)[]} buttons
 */
export function drawTools(place, tools, buttons) {
  if (!tools.length) return place.replaceChildren(element("p", { class: "empty" }, "None yet."));
  const total = tools.reduce((sum, tool) => sum + tokensOf(tool), 0);
  const hasSchemas = tools.some(({ inputSchema }) => inputSchema);
  const count = `${tools.length} ${tools.length === 1 ? "tool" : "tools"}${hasSchemas ? `, about ${total} tokens` : ""}`;
  place.replaceChildren(element("p", { class: "hint" }, count), element("ul", { class: "list tools" }, ...tools.map((tool) => toolItem(tool, buttons))));
}

/** @param {Tool} tool @param {(tool: Tool) => (HTMLElement | null)[]} buttons */
function toolItem(tool, buttons) {
  const { name, title, description, annotations = {}, inputSchema } = tool;
  const hints = HINTS.filter(([hint]) => annotations[hint] === true).map(([, text, look]) => element("span", { class: `badge ${look}` }, text));
  const definition = inputSchema ? element("details", {}, element("summary", {}, "Definition")) : null;
  definition?.addEventListener("toggle", () => {
    if (definition.open && definition.childElementCount === 1) definition.append(jsonTree(tool, `the definition of ${name}`));
  });
  return element(
    "li",
    { "data-tool": name },
    element("div", { class: "row" }, element("p", { class: "name" }, name), title && title !== name ? element("span", { class: "hint" }, title) : null, ...hints, ...buttons(tool)),
    description ? element("p", { class: "about" }, description) : null,
    definition,
  );
}
