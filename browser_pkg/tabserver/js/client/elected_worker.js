/**
 * Leader election between tabs, for browsers without shared workers: one tab runs a dedicated worker for all.
 *
 * A Web Lock elects the leader, so at most one tab leads. The leader runs the same script as a dedicated worker, and all tabs,
 * itself included, use it through broadcast ports. When the leading tab is closed, its worker ends with it; the other tabs detect
 * that as the end of any worker and start again. It does not look into messages.
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
   * @param {() => void} failed
   */
  constructor(url, name, failed) {
    // The same key as for shared workers: the script's address with its build, and the name.
    const key = `${name} ${url.href}`;
    const { port, stop } = openPort(key);
    this.#port = port;
    this.#stopRequests = stop;
    navigator.locks
      .request(`tabrelay-lead:${key}`, { signal: this.#closing.signal }, () => this.#lead(url, name, failed))
      .catch(() => {
        if (!this.#closing.signal.aborted) failed();
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

  /** Withdraw the candidacy. A worker that this tab runs ends, and another tab leads. */
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
   * @param {() => void} failed
   */
  #lead(url, name, failed) {
    const { signal } = this.#closing;
    // A tab that had a worker gets the lock because its leader is gone: it starts again, with another candidate.
    if (this.#isOpen || signal.aborted) return undefined;
    this.#worker = new Worker(url, { type: "module", name });
    // Later errors are handled in the worker.
    this.#worker.onerror = () => {
      if (!this.#isOpen) failed();
    };
    return new Promise((resolve) => signal.addEventListener("abort", resolve));
  }
}
