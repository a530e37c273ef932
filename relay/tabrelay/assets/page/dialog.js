/**
 * Modal dialog with a question and two buttons: `confirmDialog({ title, text, confirm })`.
 *
 * The button that changes nothing has the focus, so that Enter and Escape decline. Texts go in as text nodes. Approval of tool
 * calls has a dialog of its own, which pages cannot change: `tabserver/js/client/approval_dialog.js`.
 */

import { element } from "./element.js";

/**
 * @param {object} question
 * @param {string} question.title
 * @param {string | string[]} question.text paragraphs: what will happen, in words
 * @param {string} question.confirm label of the button that acts
 * @param {string} [question.cancel] label of the other button
 * @param {boolean} [question.isDanger] the action destroys something
 * @returns {Promise<boolean>}
 */
export function confirmDialog({ title, text, confirm, cancel = "Cancel", isDanger = false }) {
  const decline = element("button", { type: "button", class: "button", autofocus: true }, cancel);
  const accept = element("button", { type: "button", class: isDanger ? "button is-danger" : "button is-primary" }, confirm);
  const heading = element("h2", { id: "dialog-title" }, title);
  const paragraphs = [text].flat().map((line) => element("p", {}, line));
  const actions = element("div", { class: "row" }, decline, accept);
  const content = element("div", { class: "stack" }, heading, ...paragraphs, actions);
  const dialog = element("dialog", { class: "dialog", "aria-labelledby": heading.id }, content);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    accept.addEventListener("click", () => dialog.close("yes"));
    decline.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
