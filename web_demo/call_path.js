/**
 * Draws the way of a call (client, relay, worker, tabs) as a line with stops, and shows where it is interrupted.
 *
 * It says nothing that the words above it do not say; it lets one see it at a glance.
 */

import { byId, setText } from "/-/page/element.js";

/**
 * @typedef {import("./state.js").Notice["lamp"]} Track how the line *into* a stop is
 * @typedef {"client" | "relay" | "worker" | "tabs"} Stop
 */

export function callPath() {
  const host = byId("line", HTMLElement);

  /** @param {Stop} stop */
  const at = (stop) => /** @type {HTMLElement} */ (host.querySelector(`[data-stop="${stop}"]`));

  return {
    /** @param {Stop} stop @param {string} text */
    setLabel(stop, text) {
      const label = at(stop).querySelector("span");
      if (label) setText(label, text);
    },

    /** @param {Stop} stop @param {Track} track */
    setTrack(stop, track) {
      at(stop).dataset.track = track;
    },

    /** @param {boolean} isBusy whether a call is on its way */
    busy(isBusy) {
      host.toggleAttribute("data-busy", isBusy);
    },
  };
}
