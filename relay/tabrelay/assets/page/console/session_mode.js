/**
 * A session file in place of the live stream: its rows and details, and the way back.
 *
 * While a file is open the stream is stopped, so the rows are only the file's. It works without a relay.
 */

import { byId, element } from "../element.js";

/** @typedef {import("./relay_api.js").Detail} Detail */

export class SessionMode {
  #store;
  #feed;
  /** @type {Map<string, Detail> | null} */
  #details = null;

  /**
   * @param {import("./call_store.js").CallStore} store
   * @param {import("./live_feed.js").LiveFeed} feed
   */
  constructor(store, feed) {
    this.#store = store;
    this.#feed = feed;
  }

  get isOpen() {
    return this.#details !== null;
  }

  /** @param {string} id @returns {Detail | undefined} */
  find(id) {
    return this.#details?.get(id);
  }

  /**
   * @param {string} name of the file
   * @param {{ relay: string, saved: string, calls: Detail[] }} session
   */
  open(name, { relay, saved, calls }) {
    this.#feed.stop();
    this.#store.clear();
    this.#details = new Map(calls.map((detail) => [detail.row.id, detail]));
    this.#store.take(calls.map(({ row }) => row));
    const back = element("button", { type: "button", class: "button is-small" }, "Back to the live calls");
    back.addEventListener("click", () => this.#close());
    const when = saved ? `, saved ${new Date(saved).toLocaleString()}` : "";
    this.#note(element("div", { class: "row" }, element("p", {}, `${name}: ${calls.length} calls of ${relay || "a relay"}${when}.`), back));
    byId("calls", HTMLElement).hidden = false;
  }

  #close() {
    this.#details = null;
    this.#store.clear();
    this.#note();
    this.#feed.start();
  }

  /** @param {...HTMLElement} content */
  #note(...content) {
    const place = byId("session", HTMLElement);
    place.hidden = content.length === 0;
    place.replaceChildren(...content);
  }
}
