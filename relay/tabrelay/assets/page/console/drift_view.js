/**
 * Change of a server's tools since they were first used: each tool with its difference, and a button to accept all.
 *
 * The relay has the definitions before the change only if it was running then, or had stored the server's list; of other tools it
 * knows digests, so only their names are shown.
 */

import { element } from "../element.js";
import { diffTools } from "./diff.js";
import { diffView } from "./diff_view.js";

/**
 * @typedef {import("./tool_list.js").Tool} Tool
 * @typedef {{ before: Tool[], after: Tool[] }} ChangedTools
 *
 * @param {{ added: string[], removed: string[], changed: string[] }} drift
 * @param {() => void} accept
 * @param {() => Promise<ChangedTools>} read the definitions before and after
 * @returns {HTMLElement[]}
 */
export function driftView({ added, removed, changed }, accept, read) {
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
  const differences = element("div", { class: "stack is-close", "data-testid": "drift-diff" });
  void read().then(
    ({ before, after }) => differences.replaceChildren(...toolDifferences(before, after, changed)),
    () => undefined, // the names are shown
  );
  return [element("p", {}, "Its tools have changed since they were first used."), element("ul", { class: "diff mono" }, ...lines), differences, button];
}

/** @param {Tool[]} before @param {Tool[]} after @param {string[]} changed @returns {HTMLElement[]} */
function toolDifferences(before, after, changed) {
  const known = new Set(before.map(({ name }) => name));
  // A changed tool whose former definition is not known would look added.
  const found = diffTools(before, after.filter(({ name }) => known.has(name) || !changed.includes(name)));
  const unknown = changed.filter((name) => !known.has(name));
  return [
    ...found.map(({ name, kind, lines }) => element("details", { open: kind === "changed" }, element("summary", {}, `${name}: ${kind}`), diffView(lines, `Difference of ${name}`))),
    ...(unknown.length ? [element("p", { class: "hint" }, `The former definition is not known of: ${unknown.join(", ")}.`)] : []),
  ];
}
