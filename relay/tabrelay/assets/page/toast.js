/**
 * Short notices at the lower edge of the page: `toast(text)`.
 *
 * Screen readers announce them. At most three are shown, the oldest goes first, and each disappears by itself. A notice has no
 * button and takes no focus: what needs an answer is a dialog.
 */

import { element } from "./element.js";

const SHOWN_MS = 5000;
const MAX_SHOWN = 3;

/** @type {HTMLElement | undefined} */
let place;

/** @param {string} text */
export function toast(text) {
  if (!place?.isConnected) {
    place = element("div", { class: "toasts", role: "status", "aria-live": "polite" });
    document.body.append(place);
  }
  const notice = element("p", { class: "toast" }, text);
  while (place.childElementCount >= MAX_SHOWN) place.firstElementChild?.remove();
  place.append(notice);
  setTimeout(() => notice.remove(), SHOWN_MS);
}
