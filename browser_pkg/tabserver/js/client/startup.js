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
 */

import { describe } from "./errors.js";
import { pause } from "./locks.js";
import { askHealth, whyUnreachable } from "./relay_health.js";
import { workerAddress } from "./shared_worker.js";
import { claimTab, holdPageLock } from "./tab_identity.js";
import { WorkerHost } from "./worker_host.js";

/** The pauses between questions to a relay that does not answer, or does not prove itself; then LONGEST_RETRY_MS. */
const RETRY_MS = [1_000, 2_000, 3_000];
const LONGEST_RETRY_MS = 3_000;
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

  async start() {
    const { host, relay } = this.#owner;
    if (WorkerHost.problem) return this.#state.set("stopped", "unsupported", `Tabrelay can't run here. ${WorkerHost.problem}`);
    try {
      // A page of the relay first removes the pairing code from its address; any other page needs a relay to ask.
      if (this.#credential.isOwn) await this.#findToken();
      const build = await this.#findRelay();
      this.#state.compareBuild(build);
      await this.#findToken();
      // defence: another program on the port: a page loads no code from it
      await this.#checkRelay();
      await this.identify();
      if (this.#isClosed || this.#owner.isSuspended()) return;
      this.#state.set("connecting", null, "Starting the worker");
      host.start(workerAddress(relay, this.workerFile, build));
    } catch (error) {
      if (!this.#isClosed) this.#state.set("stopped", "boot_failed", describe(error));
    }
  }

  /** The worker has ended. */
  async restart() {
    this.#state.set("connecting", "lost", "The worker ended and is being started again.");
    // Immediately the first time; a worker that ends again and again is restarted after a pause.
    await this.#pause(this.#restarts++ === 0 ? 0 : RESTART_MS);
    await this.start();
  }

  /**
   * The worker's script could not be started.
   * @param {string} problem
   */
  async retryAfter(problem) {
    this.#state.set("stopped", "boot_failed", problem);
    await this.afterFailure();
    await this.start();
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
        this.#state.set("stopped", "not_paired", problem);
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
    const command = `tabrelay pairs approve ${pairing.code}`;
    this.#state.set("waiting", "pairing", `Approve this page with code ${pairing.code}: ${command}`);
    return this.#owner.showPairing(pairing);
  }

  /** The worker's code comes from the relay: load none from a program that has not proved to be the relay. */
  async #checkRelay() {
    for (let attempt = 1; !this.#isClosed; attempt++) {
      const problem = await this.#credential.checkRelay(this.#owner.closed);
      if (!problem || this.#isClosed) return;
      const { token: refused } = this.#credential.forWorker();
      const wait_ms = RETRY_MS[attempt - 1] ?? LONGEST_RETRY_MS;
      this.#state.set("waiting", problem.why, problem.message, { retry_in_ms: wait_ms, attempts: attempt });
      await this.#pause(wait_ms);
      // After a `retry` of the user, a page whose key the relay does not know asks to be paired again.
      const isAsked = this.#wake.signal.aborted && problem.why === "unauthorized" && this.#credential.canAsk;
      if (isAsked) await this.#findToken(refused);
    }
  }

  /** Wait until the relay answers. Returns its build. */
  async #findRelay() {
    const { relay, closed } = this.#owner;
    for (let attempt = 1; !this.#isClosed; attempt++) {
      const build = await askHealth(relay, closed);
      if (build !== undefined) return build;
      const wait_ms = RETRY_MS[attempt - 1] ?? LONGEST_RETRY_MS;
      const { why, message } = await whyUnreachable(relay);
      this.#state.set("waiting", why, message, { retry_in_ms: wait_ms, attempts: attempt });
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
