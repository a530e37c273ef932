/**
 * Change of a server's tools since they were first used, as a list of names with what happened to each, and a button to accept it.
 *
 * The relay keeps a digest of each tool, not its text, so the change is one of names.
 */

import { element } from "../element.js";

/**
 * @param {{ added: string[], removed: string[], changed: string[] }} drift
 * @param {() => void} accept
 * @returns {HTMLElement[]}
 */
export function driftView({ added, removed, changed }, accept) {
  const kinds = /** @type {[sign: string, kind: string, names: string[]][]} */ ([
    ["+", "added", added],
    ["−", "removed", removed],
    ["~", "changed", changed],
  ]);
  const lines = kinds.flatMap(([sign, kind, names]) =>
    names.map((name) => element("li", { class: `diff-line is-${kind}`, "data-kind": kind }, element("span", { "aria-hidden": "true" }, sign), ` ${name} `, element("span", { class: "hint" }, kind))),
  );
  const button = element("button", { type: "button", class: "button" }, "Accept these tools");
  button.addEventListener("click", accept);
  return [element("p", {}, "Its tools have changed since they were first used."), element("ul", { class: "diff mono" }, ...lines), button];
}
