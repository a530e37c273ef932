/**
 * The worker in one of the tabs, for browsers without shared workers: the tabs elect one of them by a Web Lock, it runs
 * the same script as a worker of its own, and all of them, itself included, talk to it through pipes.
 *
 * When that tab goes, its worker goes with it. The other tabs learn of that as they do of every worker's end, and start
 * anew: this file only sees to it that at most one of them leads. It knows nothing of what is said.
 */

import { knock } from "./broadcast_port.js";

/** @implements {Pick<MessagePort, "postMessage" | "onmessage" | "close">} */
export class Candidate {
  #pipe;
  #stopKnocking;
  #isGreeted = false;
  #ending = new AbortController();
  /** @type {Worker | undefined} */
  #worker;

  /**
   * @param {URL} url
   * @param {string} name
   * @param {(problem: string) => void} failed
   */
  constructor(url, name, failed) {
    // What distinguishes shared workers: the script with its build, and the name.
    const key = `${name} ${url.href}`;
    const { pipe, stop } = knock(key);
    this.#pipe = pipe;
    this.#stopKnocking = stop;
    navigator.locks
      .request(`tabrelay-lead:${key}`, { signal: this.#ending.signal }, () => this.#lead(url, name, failed))
      .catch((error) => {
        if (!this.#ending.signal.aborted) failed(`The browser does not give out its locks: ${error}`);
      });
  }

  /** Does this tab run the worker? */
  get isLeading() {
    return this.#worker !== undefined;
  }

  get onmessage() {
    return this.#pipe.onmessage;
  }

  set onmessage(listener) {
    this.#pipe.onmessage = listener && ((event) => {
      this.#isGreeted = true;
      this.#stopKnocking();
      listener.call(/** @type {any} */ (this), event);
    });
  }

  /** @param {any} message */
  postMessage(message) {
    this.#pipe.postMessage(message);
  }

  /** Stand no longer. The worker that this tab runs ends, and another tab leads. */
  close() {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#stopKnocking();
    this.#pipe.close();
    this.#ending.abort();
  }

  /**
   * Elected. The lock is held until this candidate ends.
   * @param {URL} url
   * @param {string} name
   * @param {(problem: string) => void} failed
   */
  #lead(url, name, failed) {
    const { signal } = this.#ending;
    // With a worker of its own already, this tab saw its leader go: it starts anew, and stands again then.
    if (this.#isGreeted || signal.aborted) return undefined;
    this.#worker = new Worker(url, { type: "module", name });
    // Errors of its later life are the worker's own business.
    this.#worker.onerror = () => {
      if (!this.#isGreeted) failed(`The worker could not start. Does ${url.href} load?`);
    };
    return new Promise((resolve) => signal.addEventListener("abort", resolve));
  }
}
