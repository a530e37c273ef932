/**
 * DOM elements of the client's own dialog and panel.
 *
 * Every text goes in as a text node, never as markup: names and descriptions come from other programs. It has no styles and
 * no behaviour; those are in `approval_dialog.js` and `corner_panel.js`.
 */

/** Buttons work this long after they appear: a click or key press that was meant for something else decides nothing. */
export const ENABLE_DELAY_MS = 600;

/**
 * Append a new element to `parent`.
 * @param {HTMLElement} parent
 * @param {string} tag
 * @param {string} [text]
 */
export function append(parent, tag, text) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
