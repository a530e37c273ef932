/**
 * List of the program's tools as clients see them: name, description and schemas.
 *
 * @import { Definition } from "./program_port.js"
 */

import { codeBlock } from "/-/page/code_block.js";
import { element } from "/-/page/element.js";

/**
 * @param {HTMLElement} place
 * @param {Definition[]} tools
 */
export function showTools(place, tools) {
  if (!tools.length) return place.replaceChildren(element("p", { class: "empty" }, "None. Press Run."));
  place.replaceChildren(...tools.map(toolElement));
}

/** @param {Definition} tool */
function toolElement({ name, title, description, inputSchema, outputSchema, annotations }) {
  const shown = { name, title, description, inputSchema, outputSchema, annotations };
  return element(
    "article",
    { class: "tool", "data-tool": name },
    element("h3", {}, title ?? name),
    element("p", {}, description ?? ""),
    codeBlock(JSON.stringify(shown, null, 2), "json"),
  );
}
