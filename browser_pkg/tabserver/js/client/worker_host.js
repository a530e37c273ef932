/**
 * Worker lifecycle as a page sees it: start, end, and the choice between a shared and an elected worker.
 *
 * The worker is a shared worker or, where the browser has none or blocks its requests to the relay, a dedicated worker in one of
 * the tabs (`client/elected_worker.js`). A released Web Lock shows that the worker has ended. Messages are passed on; only the
 * worker's greeting, its boot failure and its state are read here.
 *
 * @import { FromPage, FromWorker } from "../ports.js"
 * @import { Port } from "./broadcast_port.js"
 */

import { Candidate } from "./elected_worker.js";
import { startShared } from "./shared_worker.js";
import { whenFree } from "./locks.js";

const START_TIMEOUT_MS = 20_000;
// The shared worker is replaced when it failed to reach the relay this often while the page could. One time is not enough: a
// relay that was just started is reached at the next attempt.
const MAX_UNREACHED = 3;

/**
 * @typedef {object} HostListeners
 * @property {() => void} opened the worker has sent its first message and receives messages
 * @property {(message: FromWorker) => void} message
 * @property {(reason: string) => void} disconnected the port to the worker is closed
 * @property {() => void} died the worker ended by itself
 * @property {(problem: string) => void} failed the worker can't be started
 * @property {(problem: string) => void} unresponsive the worker has sent no message
 * @property {() => Promise<boolean>} canReachRelay does the relay answer this page?
 */

export class WorkerHost {
  #name;
  #wanted;
  #listeners;
  #hasTriedShared = false;
  #unreachedCount = 0;
  /** @type {URL | undefined} */
  #url;
  /** @type {Port | undefined} */
  #port;
  /** @type {(message: FromPage) => void} */
  #replyTo = () => {};
  #isOpen = false;
  /** @type {AbortController} */
  #watch = new AbortController();

  /**
   * @param {string} server
   * @param {"shared" | "elected" | undefined} wanted undefined: choose
   * @param {HostListeners} on
   */
  constructor(server, wanted, on) {
    this.#name = `tabrelay:${server}`;
    this.#wanted = wanted;
    this.#listeners = on;
  }

  /** Why no worker can run in this browser; undefined if one can. */
  static get problem() {
    if (globalThis.BroadcastChannel && navigator.locks) return undefined;
    return isSecureContext ? "The browser is too old." : "It needs https, or a page on localhost.";
  }

  /** @returns {"shared" | "elected"} */
  get mode() {
    if (this.#wanted) return this.#wanted;
    return this.#hasTriedShared || !("SharedWorker" in globalThis) ? "elected" : "shared";
  }

  /** Does the worker run in this tab? */
  get isHere() {
    return this.#port instanceof Candidate && this.#port.isLeading;
  }

  /** @param {URL} url */
  start(url) {
    this.end("The worker is started again");
    this.#url = url;
    const watch = (this.#watch = new AbortController());
    const failed = (/** @type {string} */ problem) => {
      if (!watch.signal.aborted) this.#fail(problem);
    };
    const timer = setTimeout(() => {
      this.#listeners.unresponsive("The worker does not answer. Close all tabs of this site and open it again.");
    }, START_TIMEOUT_MS);
    watch.signal.addEventListener("abort", () => clearTimeout(timer));
    /** @type {Port} */
    let port;
    try {
      port = this.mode === "shared" ? startShared(url, this.#name, failed) : new Candidate(url, this.#name, failed);
    } catch (error) {
      return failed(`The worker could not start. ${error}`);
    }
    let isSilent = true;
    this.#port = port;
    this.#replyTo = (message) => port.postMessage(message);
    port.onmessage = ({ data }) => {
      if (isSilent) clearTimeout(timer);
      isSilent = false;
      if (this.#port === port) this.#receive(typeof data === "string" ? JSON.parse(data) : data);
    };
  }

  /**
   * Close the port. A worker that runs in this tab ends, and another tab takes over.
   * @param {string} reason
   */
  end(reason) {
    if (!this.#port) return;
    this.#watch.abort();
    this.#port.close();
    this.#port = undefined;
    this.#isOpen = false;
    this.#listeners.disconnected(reason);
  }

  /**
   * Messages before the worker's first one are dropped, because it may not receive them: `opened` sends everything.
   * @param {FromPage} message
   */
  post(message) {
    if (this.#isOpen) this.#port?.postMessage(message);
  }

  /** Posts to the current worker, also later: a reply goes to the worker that sent the request, not to its successor. */
  get reply() {
    return this.#replyTo;
  }

  /** @param {FromWorker} message */
  #receive(message) {
    if (message.t === "call") return this.#listeners.message(message);
    if (message.t === "worker") {
      this.#isOpen = true;
      void this.#watchLock(message.lock);
      return this.#listeners.opened();
    }
    if (message.t === "boot" && message.stage === "failed") return void this.#bootFailed(message);
    this.#listeners.message(message);
    if (message.t !== "state") return undefined;
    if (message.state === "waiting") void this.#checkReach();
    else if (message.state === "connected") this.#unreachedCount = 0;
  }

  /**
   * Browsers do not report the end of a worker, but they release its Web Lock.
   * @param {string} lock
   */
  async #watchLock(lock) {
    if (!(await whenFree(lock, this.#watch.signal))) return;
    this.end("The worker ended");
    this.#listeners.died();
  }

  /**
   * If the relay stopped during the boot, that is no reason to run the worker in a tab.
   * @param {FromWorker} message
   */
  async #bootFailed(message) {
    const { signal } = this.#watch;
    const isReachable = await this.#listeners.canReachRelay();
    if (signal.aborted || (isReachable && this.#fallBack())) return;
    this.#listeners.message(message);
  }

  /** @param {string} problem */
  #fail(problem) {
    if (this.#fallBack()) return;
    this.end("The worker could not start");
    this.#hasTriedShared = false;
    this.#listeners.failed(problem);
  }

  /** A browser may forbid a shared worker what it allows a page, such as requests to loopback addresses. */
  async #checkReach() {
    const { signal } = this.#watch;
    const isReachable = await this.#listeners.canReachRelay();
    if (signal.aborted) return;
    this.#unreachedCount = isReachable ? this.#unreachedCount + 1 : 0;
    if (this.#unreachedCount >= MAX_UNREACHED) this.#fallBack();
  }

  /** Run the worker in a tab instead, unless it does already. Returns whether it was started there. */
  #fallBack() {
    if (this.#wanted || this.mode === "elected" || !this.#url) return false;
    this.#hasTriedShared = true;
    this.#unreachedCount = 0;
    this.post({ t: "detach" });
    this.start(this.#url);
    return true;
  }
}
