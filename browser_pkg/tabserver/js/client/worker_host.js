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
/** A worker file without mistakes sends its first message in less, unless the computer is busy. */
const DIAGNOSE_AFTER_MS = 3_000;
// The shared worker is replaced when it failed to reach the relay this often while the page could. One time is not enough: a
// relay that was just started is reached at the next attempt.
const MAX_UNREACHED = 3;

/** Ends a worker in any of its stages; the loader and `worker.js` listen. */
const END_CHANNEL = "tabrelay-end";

/**
 * @typedef {object} HostListeners
 * @property {() => void} opened the worker has sent its first message and receives messages
 * @property {(message: FromWorker) => void} message
 * @property {(reason: string) => void} disconnected the port to the worker is closed
 * @property {() => void} died the worker ended by itself
 * @property {(url: URL, relay?: string) => void} failed the worker can't be started, or it is one of this other relay
 * @property {(url: URL, ended: AbortSignal) => Promise<boolean>} silent it has sent nothing yet. True: its file is at fault
 * @property {() => void} unresponsive it has sent nothing for long
 * @property {(relay: string) => boolean} isRelay is it the relay of this page?
 * @property {() => Promise<boolean>} canReachRelay does the relay answer this page?
 */

export class WorkerHost {
  #name;
  #wanted;
  #listeners;
  #hasTriedShared = false;
  #unreachedCount = 0;
  /** Was the worker connected? Then it may reach the relay, and is kept: another worker would get none of its calls. */
  #hasConnected = false;
  /** @type {URL | undefined} */
  #url;
  /** @type {Port | undefined} */
  #port;
  /** @type {(message: FromPage) => void} */
  #replyTo = () => {};
  #isOpen = false;
  /** @type {AbortController} */
  #watch = new AbortController();
  /** Aborted when the worker has sent its first message. @type {AbortController} */
  #silence = new AbortController();

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
    if (this.#port && !this.#silence.signal.aborted) this.#dismiss();
    this.end("The worker is started again");
    this.#url = url;
    this.#hasConnected = false;
    const watch = (this.#watch = new AbortController());
    const failed = () => {
      if (!watch.signal.aborted) this.#fail();
    };
    this.#watchSilence(url, watch.signal);
    /** @type {Port} */
    let port;
    try {
      port = this.mode === "shared" ? startShared(url, this.#name, failed) : new Candidate(url, this.#name, failed);
    } catch {
      return failed();
    }
    this.#port = port;
    this.#replyTo = (message) => port.postMessage(message);
    port.onmessage = ({ data }) => {
      if (!this.#silence.signal.aborted) this.#silence.abort();
      if (this.#port === port) this.#receive(typeof data === "string" ? JSON.parse(data) : data);
    };
  }

  /**
   * Report a worker that sends nothing.
   * @param {URL} url
   * @param {AbortSignal} ended
   */
  #watchSilence(url, ended) {
    this.#silence = new AbortController();
    const silence = AbortSignal.any([this.#silence.signal, ended]);
    const diagnose = setTimeout(async () => {
      if (await this.#listeners.silent(url, silence)) this.#dismiss();
    }, DIAGNOSE_AFTER_MS);
    const giveUp = setTimeout(() => this.#listeners.unresponsive(), START_TIMEOUT_MS);
    silence.addEventListener("abort", () => [diagnose, giveUp].forEach(clearTimeout), { once: true });
  }

  /** End a worker whose file is at fault: it would go on to run, and serve pages that load the corrected file. */
  #dismiss() {
    const channel = new BroadcastChannel(`${END_CHANNEL}:${this.#name} ${this.#url?.href}`);
    channel.postMessage("end");
    channel.close();
    this.end("The worker file is not the one for this page");
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
      // The page attaches to no worker of another relay: its key is for this one.
      if (message.relay && !this.#listeners.isRelay(message.relay)) return this.#refuse(message.relay);
      this.#isOpen = true;
      void this.#watchLock(message.lock);
      return this.#listeners.opened();
    }
    if (message.t === "boot" && message.stage === "failed") return void this.#bootFailed(message);
    this.#listeners.message(message);
    if (message.t !== "state") return undefined;
    if (message.state === "connected") this.#hasConnected = true;
    else if (message.state === "waiting" && !this.#hasConnected) void this.#checkReach();
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

  #fail() {
    if (this.#fallBack()) return;
    const url = /** @type {URL} */ (this.#url);
    // Also if there is no port: the constructor has thrown.
    this.#watch.abort();
    this.end("The worker could not start");
    this.#hasTriedShared = false;
    this.#listeners.failed(url);
  }

  /** @param {string} relay */
  #refuse(relay) {
    this.#dismiss();
    this.#listeners.failed(/** @type {URL} */ (this.#url), relay);
  }

  /** A browser may forbid a shared worker what it allows a page, such as requests to loopback addresses. */
  async #checkReach() {
    const { signal } = this.#watch;
    const isReachable = await this.#listeners.canReachRelay();
    if (signal.aborted || this.#hasConnected) return;
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
