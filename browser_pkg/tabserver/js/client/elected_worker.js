/**
 * The worker in one of the tabs, for browsers without shared workers: the tabs elect one of them by a Web Lock, it runs
 * the same script as a worker of its own, and all of them, itself included, talk to it through pipes.
 *
 * When that tab goes, its worker goes with it. The other tabs learn of that as they do of every worker's end, and start
 * anew: this file only sees to it that at most one of them leads. It knows nothing of what is said.
 */

import { openPort } from "./broadcast_port.js";

/** @implements {Pick<MessagePort, "postMessage" | "onmessage" | "close">} */
export class Candidate {
  #port;
  #stopRequests;
  #isOpen = false;
  #closing = new AbortController();
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
    const { port, stop } = openPort(key);
    this.#port = port;
    this.#stopRequests = stop;
    navigator.locks
      .request(`tabrelay-lead:${key}`, { signal: this.#closing.signal }, () => this.#lead(url, name, failed))
      .catch((error) => {
        if (!this.#closing.signal.aborted) failed(`The browser does not give out its locks: ${error}`);
      });
  }

  /** Does this tab run the worker? */
  get isLeading() {
    return this.#worker !== undefined;
  }

  get onmessage() {
    return this.#port.onmessage;
  }

  set onmessage(listener) {
    this.#port.onmessage = listener && ((event) => {
      this.#isOpen = true;
      this.#stopRequests();
      listener.call(/** @type {any} */ (this), event);
    });
  }

  /** @param {any} message */
  postMessage(message) {
    this.#port.postMessage(message);
  }

  /** Stand no longer. The worker that this tab runs ends, and another tab leads. */
  close() {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#stopRequests();
    this.#port.close();
    this.#closing.abort();
  }

  /**
   * Elected. The lock is held until this candidate ends.
   * @param {URL} url
   * @param {string} name
   * @param {(problem: string) => void} failed
   */
  #lead(url, name, failed) {
    const { signal } = this.#closing;
    // With a worker of its own already, this tab saw its leader go: it starts anew, and stands again then.
    if (this.#isOpen || signal.aborted) return undefined;
    this.#worker = new Worker(url, { type: "module", name });
    // Errors of its later life are the worker's own business.
    this.#worker.onerror = () => {
      if (!this.#isOpen) failed(`The worker could not start. Does ${url.href} load?`);
    };
    return new Promise((resolve) => signal.addEventListener("abort", resolve));
  }
}
