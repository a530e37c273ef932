/**
 * Where the worker runs, and this page's way to it: a shared worker or, where there is none or it does not get through to
 * the relay, a worker in one of the tabs (`client/elected_worker.js`).
 *
 * It starts what is to run, finds out when it ends, and decides between the two. What is said over the way is passed on.
 *
 * @import { FromPage, FromWorker } from "../ports.js"
 * @import { Port } from "./broadcast_port.js"
 */

import { Candidate } from "./elected_worker.js";
import { startShared } from "./shared_worker.js";
import { whenFree } from "./locks.js";

const START_TIMEOUT_MS = 20_000;
// So often must the worker have found no relay while this page did: a relay that was just started is found the next time.
const MAX_UNREACHED = 3;

/**
 * @typedef {object} HostListeners
 * @property {() => void} opened the worker is there and listens
 * @property {(message: FromWorker) => void} message
 * @property {(reason: string) => void} disconnected there is no way to the worker any more
 * @property {() => void} died the worker ended by itself
 * @property {(problem: string) => void} failed it does not start
 * @property {(problem: string) => void} unresponsive it says nothing at all
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
   * @param {"shared" | "elected" | undefined} wanted if it must be one of the two
   * @param {HostListeners} on
   */
  constructor(server, wanted, on) {
    this.#name = `tabrelay:${server}`;
    this.#wanted = wanted;
    this.#listeners = on;
  }

  /** Why nothing can run here, if so. */
  static get problem() {
    if (globalThis.BroadcastChannel && navigator.locks) return undefined;
    return isSecureContext ? "The browser is too old." : "It needs https, or a page on localhost.";
  }

  /** @returns {"shared" | "elected"} */
  get mode() {
    if (this.#wanted) return this.#wanted;
    return this.#hasTriedShared || !("SharedWorker" in globalThis) ? "elected" : "shared";
  }

  /** Does the worker run in this very tab? */
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
   * Leave the worker. If it runs in this tab, it ends, and another tab takes over.
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
   * A worker that has not spoken yet may not hear: it is told everything when it has.
   * @param {FromPage} message
   */
  post(message) {
    if (this.#isOpen) this.#port?.postMessage(message);
  }

  /** A reply belongs to the worker that asked, not to the one that took its place. */
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
   * Nothing tells a page that its worker died, but the lock that the worker held becomes free.
   * @param {string} lock
   */
  async #watchLock(lock) {
    if (!(await whenFree(lock, this.#watch.signal))) return;
    this.end("The worker ended");
    this.#listeners.died();
  }

  /**
   * A relay that went away during the start is no reason to run the worker in a tab.
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

  /** A browser may keep a shared worker from what it allows a page, such as this computer's own ports. */
  async #checkReach() {
    const { signal } = this.#watch;
    const isReachable = await this.#listeners.canReachRelay();
    if (signal.aborted) return;
    this.#unreachedCount = isReachable ? this.#unreachedCount + 1 : 0;
    if (this.#unreachedCount >= MAX_UNREACHED) this.#fallBack();
  }

  /** Run the worker in a tab instead, if that has not been tried. */
  #fallBack() {
    if (this.#wanted || this.mode === "elected" || !this.#url) return false;
    this.#hasTriedShared = true;
    this.#unreachedCount = 0;
    this.post({ t: "detach" });
    this.start(this.#url);
    return true;
  }
}
