/**
 * Diagram of a call's path on the demo page: client, relay, worker, tabs, and where it is interrupted.
 *
 * It repeats the status text above it as a picture. It decides nothing: demo.js sets labels and tracks.
 */

import { byId, setText } from "/-/page/element.js";

/**
 * @typedef {import("./state.js").Notice["lamp"]} Track the style of the line *into* a stop
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

    /** @param {boolean} isBusy whether a call is running */
    busy(isBusy) {
      host.toggleAttribute("data-busy", isBusy);
    },
  };
}
