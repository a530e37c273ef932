/**
 * Startup sequence of a connection: token, relay, tab id, worker; and the same again after a worker has ended.
 *
 * Each step waits until it succeeds and reports the reason as a state meanwhile; `wake` ends a wait early. No code of the
 * worker is loaded from a program that has not proved to be the relay. Messages to and from the worker are not handled here.
 *
 * @import { Pairing } from "../client.js"
 * @import { ConnectionState } from "./state.js"
 * @import { PageLock } from "./tab_identity.js"
 * @import { Credential } from "./token.js"
 * @import { WorkerHost } from "./worker_host.js"
 */

import { describe } from "./errors.js";
import { pause } from "./locks.js";
import { isServerName } from "./options.js";
import { Problem } from "./reasons.js";
import { askHealth, isLoopback, startCommand, whyUnreachable } from "./relay_health.js";
import { workerAddress } from "./shared_worker.js";
import { claimTab, holdPageLock } from "./tab_identity.js";
import { diagnoseWorker, fileOf } from "./worker_diagnosis.js";

/**
 * The pauses between questions to a relay that does not answer, or does not prove itself: as in the loader. Together with the boot of
 * the worker, a page is connected within 5 s of the relay's return.
 */
const RETRY_MS = 1_000;
const LATER_RETRY_MS = 2_000;
const SOON_ATTEMPTS = 30;
/** How often an unreachable relay is asked until the reason is looked for again, which takes more requests. */
const ATTEMPTS_PER_DIAGNOSIS = 10;
/** The pauses before a worker that failed to start is started again although the relay answers. */
const BOOT_RETRY_MS = [3_000, 10_000, 30_000, 60_000];
/** The pause before a worker that ended is started again. The first time there is none. */
const RESTART_MS = 3_000;

/**
 * What the startup needs of its connection.
 * @typedef {object} Owner
 * @property {string} relay
 * @property {string} server
 * @property {Credential} credential
 * @property {WorkerHost} host
 * @property {ConnectionState} state
 * @property {AbortSignal} closed aborted when the connection is closed
 * @property {() => boolean} isSuspended has the page left its worker for now?
 * @property {(pairing: Pairing | null) => boolean} showPairing true: the page shows the code itself. Null: the code is not
 *   needed any more
 * @property {() => void} tokenChanged there is another token to pass to the worker
 */

export class Startup {
  tab = { id: "" };
  /** The file that the page's origin hosts for the worker, if the relay has another origin. @type {string | URL | undefined} */
  workerFile;
  /** Does this page obtain a token right now? */
  isPairing = false;

  #owner;
  #state;
  #credential;
  /** @type {PageLock | undefined} */
  #pageLock;
  /** Ends a pause early. @type {AbortController} */
  #wake = new AbortController();
  #restarts = 0;
  /** How often the worker failed to start since the last connection. */
  #bootFailures = 0;
  /** Counts the starts: only the last one goes on. */
  #run = 0;
  /** Has the relay refused the token, and does this page wait until it may ask for another one? */
  #isPairingAgain = false;

  /** @param {Owner} owner */
  constructor(owner) {
    this.#owner = owner;
    this.#state = owner.state;
    this.#credential = owner.credential;
  }

  /** The Web Lock that proves to the worker that this page lives. */
  get lock() {
    return this.#pageLock?.lock ?? "";
  }

  get #isClosed() {
    return this.#owner.closed.aborted;
  }

  /** Start the worker. After a failure that only the user or the app's author can remove, it waits for `wake`. */
  async start() {
    const run = ++this.#run;
    while (run === this.#run && !this.#isClosed) {
      try {
        return await this.#begin();
      } catch (error) {
        if (run !== this.#run || this.#isClosed) return;
        const problem = error instanceof Problem ? error : new Problem("start_failed", { detail: describe(error) });
        this.#state.fail("stopped", problem);
      }
      await this.#pause();
    }
  }

  async #begin() {
    const { host, relay } = this.#owner;
    this.#checkPage();
    // A page of the relay first removes the pairing code from its address; any other page needs a relay to ask.
    if (this.#credential.isOwn) await this.#findToken();
    const build = await this.#findRelay();
    this.#state.compareBuild(build);
    await this.#findToken();
    // defence: another program on the port: a page loads no code from it
    await this.#checkRelay();
    await this.identify();
    if (this.#isClosed || this.#owner.isSuspended()) return;
    this.#state.connecting("Starting the worker");
    host.start(workerAddress(relay, this.workerFile, build));
  }

  /** Throws the Problem of a page that can't serve, whatever the relay answers. */
  #checkPage() {
    const { relay, server } = this.#owner;
    const { origin, port, protocol } = location;
    if (!isServerName(server)) throw new Problem("server_invalid", { server });
    if (protocol === "file:") throw new Problem("file_page");
    if (globalThis.origin === "null") throw new Problem("no_origin");
    if (!globalThis.BroadcastChannel || !navigator.locks) {
      throw new Problem(isSecureContext || isLoopback(location.hostname) ? "unsupported" : "insecure_page", { origin, port: port || 80 });
    }
    workerAddress(relay, this.workerFile, "");
  }

  /** The worker has ended. */
  async restart() {
    this.#state.fail("connecting", new Problem("worker_ended"));
    // Immediately the first time; a worker that ends again and again is restarted after a pause.
    await this.#pause(this.#restarts++ === 0 ? 0 : RESTART_MS);
    await this.start();
  }

  /**
   * The worker could not be started, or it is the worker of another relay.
   * @param {URL} url
   * @param {string} [other] the relay of the worker
   */
  async retryAfter(url, other) {
    const { relay, closed } = this.#owner;
    const values = { file: fileOf(url), relay, other };
    const problem = other ? new Problem("relay_mismatch", values) : await diagnoseWorker(url, relay, closed);
    await this.#retryAfter(problem ?? new Problem("worker_failed", values));
  }

  /** A mistake in the worker file waits for the app's author, and is looked for again. @param {Problem} problem */
  async #retryAfter(problem) {
    if (this.#isClosed) return;
    this.#state.fail("stopped", problem);
    await this.afterFailure();
    await this.start();
  }

  /**
   * The worker has sent nothing yet. Returns true if its file is at fault, which no wait repairs.
   * @param {URL} url
   * @param {AbortSignal} ended aborted when the worker has sent something, or was ended
   */
  async checkSilentWorker(url, ended) {
    const problem = await diagnoseWorker(url, this.#owner.relay, ended);
    if (!problem || ended.aborted || this.#isClosed) return false;
    void this.#retryAfter(problem);
    return true;
  }

  /** The worker has sent nothing for so long that it probably never will. */
  async afterSilence() {
    this.#state.fail("stopped", new Problem("worker_silent"));
    await this.#pause();
    if (this.#state.current.code === "worker_silent") await this.start();
  }

  /**
   * Wait until the worker may be started again: not at all if the relay went away meanwhile, because the start then waits for
   * the relay; otherwise for a pause that grows, because the cause probably persists.
   */
  async afterFailure() {
    if ((await askHealth(this.#owner.relay, this.#owner.closed)) === undefined) return;
    const pauses = BOOT_RETRY_MS;
    await this.#pause(pauses[Math.min(this.#bootFailures++, pauses.length - 1)]);
  }

  /** The worker is connected to the relay: failures are counted from zero again. */
  succeeded() {
    this.#restarts = this.#bootFailures = 0;
  }

  /** End the current pause. */
  wake() {
    this.#wake.abort();
  }

  /** Give up the page's Web Lock, because the connection is closed. */
  release() {
    this.#pageLock?.release();
  }

  /** Claim this tab's id, and hold the lock of this page. */
  async identify() {
    this.#pageLock ??= await holdPageLock(this.#owner.server);
    if (this.#isClosed) this.#pageLock.release();
    this.tab = { id: await claimTab() };
  }

  /**
   * The relay refuses this page's token. The page asks for another one after `wake`; a reload asks too.
   * @param {boolean} isCertain the relay had proved itself. Another program could send the same refusal; the key then stays
   */
  async pairAgain(isCertain) {
    if (this.#isPairingAgain || !this.#credential.canAsk) return;
    this.#isPairingAgain = true;
    const { token: refused } = this.#credential.forWorker();
    if (isCertain) await this.#credential.forget();
    await this.#pause();
    if (this.#state.current.state !== "connected") {
      await this.#findToken(refused);
      this.#owner.tokenChanged();
    }
    this.#isPairingAgain = false;
  }

  /** @param {string} [refused] the id of a key that the relay does not know */
  async #findToken(refused) {
    this.isPairing = true;
    try {
      while (!this.#isClosed) {
        const problem = await this.#credential.obtain(
          this.#owner.closed,
          (pairing) => this.#showCode(pairing),
          refused,
        );
        if (this.#state.current.why === "pairing") this.#owner.showPairing(null);
        if (!problem || this.#isClosed) return;
        this.#state.fail("stopped", problem);
        await this.#pause();
      }
    } finally {
      this.isPairing = false;
    }
  }

  /**
   * The user must see the code. True: the page shows it itself.
   * @param {Pairing} pairing
   */
  #showCode(pairing) {
    this.#state.fail("waiting", new Problem("pairing", { code: pairing.code }));
    return this.#owner.showPairing(pairing);
  }

  /** The worker's code comes from the relay: load none from a program that has not proved to be the relay. */
  async #checkRelay() {
    for (let attempt = 1; !this.#isClosed; attempt++) {
      const problem = await this.#credential.checkRelay(this.#owner.closed);
      if (!problem || this.#isClosed) return;
      const { token: refused } = this.#credential.forWorker();
      const wait_ms = attempt < SOON_ATTEMPTS ? RETRY_MS : LATER_RETRY_MS;
      const { relay, server } = this.#owner;
      const stated = Problem.stated(problem.why, problem.message, { relay, server, start: startCommand(relay), origin: location.origin });
      this.#state.fail("waiting", stated, { retry_in_ms: wait_ms, attempts: attempt });
      await this.#pause(wait_ms);
      // After a `retry` of the user, a page whose key the relay does not know asks to be paired again.
      const isAsked = this.#wake.signal.aborted && problem.why === "unauthorized" && this.#credential.canAsk;
      if (isAsked) await this.#findToken(refused);
    }
  }

  /** Wait until the relay answers. Returns its build. */
  async #findRelay() {
    const { relay, server, closed } = this.#owner;
    /** @type {Problem | undefined} */
    let problem;
    for (let attempt = 1; !this.#isClosed; attempt++) {
      const build = await askHealth(relay, closed);
      if (build !== undefined) return build;
      const wait_ms = attempt < SOON_ATTEMPTS ? RETRY_MS : LATER_RETRY_MS;
      if (!problem || attempt % ATTEMPTS_PER_DIAGNOSIS === 0) problem = await whyUnreachable(relay, server, closed);
      this.#state.fail("waiting", problem, { retry_in_ms: wait_ms, attempts: attempt });
      await this.#pause(wait_ms);
    }
    return "";
  }

  /** @param {number} [ms] without it, until `wake` */
  async #pause(ms) {
    this.#wake = new AbortController();
    await pause(ms, AbortSignal.any([this.#wake.signal, this.#owner.closed]));
  }
}
