/**
 * Difference of two texts as lines with signs; long runs of equal lines are folded.
 *
 * The signs are text, so that the difference does not depend on colours.
 */

import { element } from "../element.js";

const CONTEXT = 3;
const SIGNS = { same: " ", added: "+", removed: "−" };

/**
 * @param {import("./diff.js").DiffLine[]} lines
 * @param {string} label
 */
export function diffView(lines, label) {
  if (lines.every(({ kind }) => kind === "same")) return element("p", { class: "hint" }, "No difference.");
  const near = lines.map((_, index) => lines.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some(({ kind }) => kind !== "same"));
  /** @type {HTMLElement[]} */
  const items = [];
  let skipped = 0;
  const fold = () => {
    if (skipped) items.push(element("li", { class: "diff-line is-fold hint" }, `… ${skipped} equal ${skipped === 1 ? "line" : "lines"}`));
    skipped = 0;
  };
  lines.forEach(({ kind, text }, index) => {
    if (!near[index]) return void skipped++;
    fold();
    items.push(element("li", { class: `diff-line is-${kind}`, "data-kind": kind }, `${SIGNS[kind]} ${text}`));
  });
  fold();
  return element("ol", { class: "diff mono", "aria-label": label, tabindex: 0 }, ...items);
}
