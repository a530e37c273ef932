/**
 * Reader of the relay's status, pairings and call log: when the live stream says that something has changed, and now and then.
 *
 * One reading at a time; a change meanwhile leads to one more. Nothing is read while the page is hidden. It dispatches `status`,
 * `pairs`, and `problem` with the reason why there is none. Ages and retry times of the status change by themselves, hence the
 * slow readings.
 */

import { isPaired } from "/-/client/redeem_code.js";
import { Unproven } from "/-/proof.js";
import { ask, Refusal } from "./relay_api.js";

const REFRESH_MS = 5000;
const SETTLE_MS = 50;

/** @typedef {"not_paired" | "unproven" | "down" | "error"} Problem */

export class StatusReader extends EventTarget {
  #isReading = false;
  #isStale = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => !document.hidden && this.read());
  }

  /** Read now, or once more when the present reading has ended. */
  read() {
    this.#isStale = true;
    if (!this.#isReading) void this.#run();
  }

  async #run() {
    clearTimeout(this.#timer);
    this.#isReading = true;
    while (this.#isStale && !document.hidden) {
      this.#isStale = false;
      await this.#once();
      if (this.#isStale) await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
    this.#isReading = false;
    this.#timer = setTimeout(() => !document.hidden && this.read(), REFRESH_MS);
  }

  async #once() {
    if (!isPaired()) return this.#say("problem", { problem: "not_paired" });
    try {
      this.#say("status", await ask("/-/status"));
      // A token for some servers may not read the pairs.
      this.#say("pairs", await ask("/-/pairs").catch(() => null));
    } catch (error) {
      this.#say("problem", problemOf(error));
    }
  }

  /** @param {string} type @param {unknown} detail */
  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** @param {unknown} error @returns {{ problem: Problem, text?: string }} */
function problemOf(error) {
  if (error instanceof Refusal) {
    if (error.status === 401 || error.status === 403) return { problem: "not_paired" };
    return { problem: "error", text: error.message };
  }
  if (error instanceof Unproven && error.why === "unauthorized") return { problem: "not_paired" };
  if (error instanceof Unproven && error.why === "unproven") return { problem: "unproven", text: error.message };
  return { problem: "down" };
}
