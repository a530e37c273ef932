/**
 * One tab's attachment to one server. The link to the relay belongs to the worker and outlives this page.
 *
 * This file holds no protocol: it keeps the tab attached through worker crashes, the back/forward cache and relay
 * restarts, and tells the page how things stand.
 *
 * @import {
 *   Boot, Catalogue, ConnectOptions, OfferOptions, Pairing, Prompt, Resource, RunPython, State, Timing, Tool, Why
 * } from "../client.js"
 * @import { ApproveMessage, FromPage, FromWorker, OfferKind, Offers as Offered } from "../ports.js"
 * @import { PageLock } from "./tab_identity.js"
 */

import { Approvals } from "./approvals.js";
import { BUILD } from "../build.js";
import { RunningCalls } from "./running_calls.js";
import { Credential } from "./token.js";
import { describe } from "./errors.js";
import { WorkerHost } from "./worker_host.js";
import { Offers } from "./offers.js";
import { askHealth, whyUnreachable } from "./relay_health.js";
import { workerAddress } from "./shared_worker.js";
import { holdPageLock, browserId, claimTab, tabInfo, watchTab } from "./tab_identity.js";
import { pause } from "./locks.js";

const RETRY_MS = [1_000, 2_000, 3_000];
/** The pauses before a worker that failed to start is started again although the relay answers. */
const BOOT_RETRY_MS = [3_000, 10_000, 30_000, 60_000];
const RUN_PYTHON = { timeoutMs: 30_000, maxOutput: 100_000 };

// One for the whole page, whatever brought this file: a bundle and PyScript may each have a copy, and a tab is one tab.
const SHARED = Symbol.for("tabrelay.connections");
const page = /** @type {any} */ (globalThis);
/** @type {Map<string, Connection>} */
const connections = (page[SHARED] ??= new Map());

/**
 * Attach this tab to a server. Called again for the same server, it returns the same connection.
 * @param {ConnectOptions} options
 * @returns {Connection}
 */
export function connect(options) {
  if (!options?.server) throw new TypeError('connect() needs the name of a server: connect({ server: "notes" })');
  const relay = new URL(options.relay ?? ownRelay(), document.baseURI).origin;
  const key = `${relay}/${options.server}`;
  const existing = connections.get(key);
  if (existing && !existing.isClosed) {
    existing.extend(options);
    return existing;
  }
  const connection = new Connection(relay, options);
  connections.set(key, connection);
  return connection;
}

/** The relay that this file came from. A copy in somebody's bundle came from nowhere that is one. */
function ownRelay() {
  if (new URL(import.meta.url).pathname.startsWith("/-/")) return import.meta.url;
  throw new TypeError(
    "This app has its own copy of client.js, so connect() must be told where the relay is: " +
      'connect({ server, relay: "http://127.0.0.1:4747" })',
  );
}

/**
 * One tab's attachment to one server. Events: "state", "catalogue", "activity", "boot", "module_failed"; the message is
 * in `event.detail`.
 */
export class Connection extends EventTarget {
  isClosed = false;
  /** The last of each, for pages that come to listen late. @type {State} */
  state;
  /** @type {Boot | null} */
  boot = null;
  /** @type {Catalogue | null} */
  catalogue = null;
  tab = { id: "" };
  /** What this browser is called, where several offer the server. */
  instance;

  #relay;
  #server;
  #credential;
  /** @type {string | URL | undefined} */
  #workerFile;
  /** @type {Set<string>} */
  #modules = new Set();
  /** @type {RunPython | undefined} */
  #runPython;
  /** @type {Timing | undefined} */
  #timing;
  #offers = new Offers();
  #calls = new RunningCalls((message, context) => this.#offers.run(message, context));
  #approvals = new Approvals();
  /** @type {ConnectOptions["approve"]} */
  #approve;
  /** Does anybody listen for "activity"? */
  #wantsActivity = false;
  #host;
  /** Why the page left the worker, to come back later. @type {"" | "left" | "frozen"} */
  #suspendedBy = "";
  /** @type {PageLock | undefined} */
  #pageLock;
  #closing = new AbortController();
  /** Cuts a pause short. @type {AbortController} */
  #wake = new AbortController();
  #restarts = 0;
  /** How often the worker failed to start since the last connection. */
  #bootFailures = 0;
  /** Is this copy of the client of another build than the relay? */
  #isOutdated = false;
  /** Does this page look for a token right now? */
  #isPairing = false;
  /** Is it out, and will it ask for a token once somebody wants it to? */
  #isPairingAgain = false;

  /**
   * @param {string} relay
   * @param {ConnectOptions} options
   */
  constructor(relay, options) {
    super();
    this.#relay = relay;
    this.#server = options.server;
    this.#credential = new Credential(relay, options.server);
    this.#timing = options.timing;
    this.instance = options.instance ?? browserId();
    this.#host = this.#makeHost(options.mode);
    this.state = this.#makeState("connecting", null, "Starting");
    this.#merge(options);
    this.#watchPage();
    void this.#start();
  }

  get mode() {
    return this.#host.mode;
  }

  /**
   * @param {Tool} tool
   * @param {OfferOptions} [options]
   */
  offerTool(tool, options) {
    this.#offer(tool, options, (item) => this.#offers.addTool(item));
  }

  /**
   * @param {Resource} resource
   * @param {OfferOptions} [options]
   */
  offerResource(resource, options) {
    this.#offer(resource, options, (item) => this.#offers.addResource(item));
  }

  /**
   * @param {Prompt} prompt
   * @param {OfferOptions} [options]
   */
  offerPrompt(prompt, options) {
    this.#offer(prompt, options, (item) => this.#offers.addPrompt(item));
  }

  /** @param {string} uri */
  resourceUpdated(uri) {
    this.#post({ t: "updated", uri });
  }

  /**
   * @template {Tool | Resource | Prompt} Item
   * @param {Item} item
   * @param {OfferOptions | undefined} options
   * @param {(item: Item) => { kind: OfferKind, key: string, offer: Offered }} add
   */
  #offer(item, { signal } = {}, add) {
    if (signal?.aborted) return;
    const { kind, key, offer } = add(item);
    this.#post({ t: "offer", ...offer });
    signal?.addEventListener("abort", () => {
      if (this.#offers.remove(kind, key, item)) this.#post({ t: "withdraw", [kind]: [key] });
    }, { once: true });
  }

  /**
   * Two messages for every call of every tab are sent only to pages that somebody listens in.
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @override
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (type !== "activity" || this.#wantsActivity) return;
    this.#wantsActivity = true;
    this.#post({ t: "watch" });
  }

  /** Try now instead of waiting: for the relay, for a pairing, or for a worker that could not start. */
  retry() {
    this.#wake.abort();
    this.#post({ t: "retry" });
  }

  /** Close the worker's connection to the relay, for all tabs, until somebody retries. */
  stop() {
    this.#post({ t: "stop" });
  }

  /** Take this tab away. The worker and the other tabs go on. */
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#post({ t: "detach" });
    this.#closing.abort();
    this.#wake.abort();
    this.#host.end("The tab closed its connection");
    this.#pageLock?.release();
    this.#setState("stopped", "closed", "This tab closed its connection.");
  }

  /**
   * A second connect() for this server adds what it brings.
   * @param {ConnectOptions} options
   */
  extend(options) {
    const before = this.#modules.size;
    this.#merge(options);
    if (options.token) {
      this.#wake.abort();
      void this.#credential.obtain(this.#closing.signal, () => false).then(() => this.#postToken());
    }
    if (this.#modules.size > before || options.runPython || options.approve) this.#attach();
  }

  /** @param {ConnectOptions} options */
  #merge(options) {
    this.#credential.given = options.token ?? this.#credential.given;
    this.#workerFile ??= options.worker;
    if (options.runPython) this.#runPython ??= { ...RUN_PYTHON, ...(options.runPython === true ? {} : options.runPython) };
    this.#approve = options.approve ?? this.#approve;
    for (const url of options.modules ?? []) this.#modules.add(new URL(url, document.baseURI).href);
  }

  #watchPage() {
    const { signal } = this.#closing;
    watchTab(signal, {
      changed: (info) => {
        this.#post({ t: "tab", ...info });
        // The worker would be frozen with the tab that it runs in.
        if (info.frozen && this.#host.isHere) this.#suspend("frozen");
        else if (!info.frozen && this.#suspendedBy === "frozen") this.#resume();
      },
      left: (next) => {
        // Closed or reloaded, a browser does not always tell: the worker waits a moment for the tab's next page.
        this.#post({ t: "detach", returns: next !== "other_origin", expected: next === "same_origin" });
        this.#calls.cancelAll("The tab was left");
        // In the back/forward cache a page keeps its locks, and would go on to lead.
        if (this.#host.mode === "elected") this.#suspend("left");
      },
      returned: () => void this.#identify().then(() => this.#resume() || this.#attach()),
    });
    // Another tab of this origin paired.
    addEventListener("storage", (event) => {
      if (event.key !== this.#credential.name || !event.newValue) return;
      void this.#credential.reload().then((hasNewKey) => {
        if (!hasNewKey) return;
        this.#wake.abort();
        this.#postToken();
      });
    }, { signal });
  }

  /** @param {"left" | "frozen"} why */
  #suspend(why) {
    this.#suspendedBy = why;
    this.#host.end(`The tab was ${why}`);
  }

  #resume() {
    const wasSuspended = this.#suspendedBy !== "";
    this.#suspendedBy = "";
    if (wasSuspended) void this.#start();
    return wasSuspended;
  }

  // -- the way up: token, relay, lock, worker -----------------------------------------------------------------------

  async #start() {
    if (WorkerHost.problem) return this.#setState("stopped", "unsupported", `Tabrelay can't run here. ${WorkerHost.problem}`);
    try {
      // A page of the relay first takes the code out of its address; any other needs a relay to ask.
      if (this.#credential.isOwn) await this.#findToken();
      const build = await this.#findRelay();
      this.#isOutdated = BUILD !== "" && build !== BUILD;
      await this.#findToken();
      // defence: another program on the port: a page loads no code from it
      await this.#checkRelay();
      await this.#identify();
      if (this.isClosed || this.#suspendedBy) return;
      this.#setState("connecting", null, "Starting the worker");
      this.#host.start(workerAddress(this.#relay, this.#workerFile, build));
    } catch (error) {
      if (!this.isClosed) this.#setState("stopped", "boot_failed", describe(error));
    }
  }

  /** @param {string} [refused] the id of a key that the relay does not know */
  async #findToken(refused) {
    this.#isPairing = true;
    try {
      while (!this.isClosed) {
        const problem = await this.#credential.obtain(
          this.#closing.signal,
          (pairing) => this.#showCode(pairing),
          refused,
        );
        if (this.state.why === "pairing") this.#dispatch("pairing", null);
        if (!problem || this.isClosed) return;
        this.#setState("stopped", "not_paired", problem);
        await this.#pause();
      }
    } finally {
      this.#isPairing = false;
    }
  }

  /**
   * The user must see the code. True: the page shows it itself.
   * @param {Pairing} pairing
   */
  #showCode(pairing) {
    const command = `tabrelay pairs approve ${pairing.code}`;
    this.#setState("waiting", "pairing", `Approve this page with code ${pairing.code}: ${command}`);
    const event = new CustomEvent("pairing", { detail: pairing, cancelable: true });
    return !this.dispatchEvent(event);
  }

  /** The relay takes this page no longer. It asks again when somebody wants it to, or when the page is loaded anew. */
  /** @param {boolean} isCertain the relay had proved itself. Another program could say the same, and the key stays. */
  async #pairAgain(isCertain) {
    if (this.#isPairingAgain || !this.#credential.canAsk) return;
    this.#isPairingAgain = true;
    const { token: refused } = this.#credential.forWorker();
    if (isCertain) await this.#credential.forget();
    await this.#pause();
    if (this.state.state !== "connected") {
      await this.#findToken(refused);
      this.#postToken();
    }
    this.#isPairingAgain = false;
  }

  #postToken() {
    this.#post({ t: "token", ...this.#credential.forWorker() });
  }

  /** The worker's code comes from the relay: load none from a program that has not proved to be the relay. */
  async #checkRelay() {
    for (let attempt = 1; !this.isClosed; attempt++) {
      const problem = await this.#credential.checkRelay(this.#closing.signal);
      if (!problem || this.isClosed) return;
      const { token: refused } = this.#credential.forWorker();
      const wait_ms = RETRY_MS[attempt - 1] ?? 3_000;
      this.#setState("waiting", problem.why, problem.message, { retry_in_ms: wait_ms, attempts: attempt });
      await this.#pause(wait_ms);
      // Asked to retry, a page that the relay does not know asks to be paired anew.
      const isAsked = this.#wake.signal.aborted && problem.why === "unauthorized" && this.#credential.canAsk;
      if (isAsked) await this.#findToken(refused);
    }
  }

  /** Wait until the relay answers, and learn its build. */
  async #findRelay() {
    for (let attempt = 1; !this.isClosed; attempt++) {
      const build = await askHealth(this.#relay, this.#closing.signal);
      if (build !== undefined) return build;
      const wait_ms = RETRY_MS[attempt - 1] ?? 3_000;
      const { why, message } = await whyUnreachable(this.#relay);
      this.#setState("waiting", why, message, { retry_in_ms: wait_ms, attempts: attempt });
      await this.#pause(wait_ms);
    }
    return "";
  }

  async #identify() {
    this.#pageLock ??= await holdPageLock(this.#server);
    if (this.isClosed) this.#pageLock.release();
    this.tab = { id: await claimTab() };
  }

  /** @param {"shared" | "elected" | undefined} mode */
  #makeHost(mode) {
    return new WorkerHost(this.#server, mode, {
      opened: () => this.#attach(),
      message: (message) => this.#receive(message),
      disconnected: (reason) => {
        this.#calls.cancelAll(reason);
        this.#approvals.endAll();
      },
      died: () => void this.#restart(),
      failed: (problem) => {
        this.#setState("stopped", "boot_failed", problem);
        void this.#afterFailure().then(() => this.#start());
      },
      unresponsive: (problem) => this.#setState("stopped", "boot_failed", problem),
      canReachRelay: async () => (await askHealth(this.#relay, this.#closing.signal)) !== undefined,
    });
  }

  #attach() {
    this.#post({
      t: "attach",
      tab: { id: this.tab.id, ...tabInfo(), watches: this.#wantsActivity, ...(this.#approve ? { approve: this.#approve } : {}) },
      lock: this.#pageLock?.lock ?? "",
      server: this.#server,
      ...this.#credential.forWorker(),
      modules: [...this.#modules],
      instance: this.instance,
      readsText: true,
      readsRequests: true,
      ...(this.#timing ? { timing: this.#timing } : {}),
      ...(this.#runPython ? { runPython: this.#runPython } : {}),
    });
    const offers = this.#offers.definitions();
    if (Object.keys(offers).length) this.#post({ t: "offer", ...offers });
  }

  async #restart() {
    this.#setState("connecting", "lost", "The worker ended and is being started again.");
    // The first time at once; a worker that dies again and again is not hammered.
    await this.#pause(this.#restarts++ === 0 ? 0 : 3_000);
    await this.#start();
  }

  /**
   * Wait until the worker may be started again: at once if the relay went away meanwhile, because the start then waits for
   * the relay; otherwise after a pause that grows, because the cause is likely to be there still.
   */
  async #afterFailure() {
    if ((await askHealth(this.#relay, this.#closing.signal)) === undefined) return;
    const pauses = BOOT_RETRY_MS;
    await this.#pause(pauses[Math.min(this.#bootFailures++, pauses.length - 1)]);
  }

  // -- messages -----------------------------------------------------------------------------------------------------

  /** @param {FromWorker} message */
  #receive(message) {
    switch (message.t) {
      case "call":
        return this.#calls.run(message, this.#host.reply);
      case "boot":
        this.boot = message;
        this.#dispatch("boot", message);
        if (message.stage !== "failed") return;
        this.#setState("stopped", "boot_failed", `Python could not start in the worker. ${message.detail}`);
        // The worker ends when it is asked to try again, and the page starts another one.
        // defence: a page that is loaded while the relay is down: a worker that failed is started again
        return void this.#afterFailure().then(() => this.#post({ t: "retry" }));
      case "state":
        // That the worker has no good token is what this page is asking for one about: its own words say more.
        if (this.#isPairing && message.state !== "connected") return;
        if (message.state === "connected") this.#restarts = this.#bootFailures = 0;
        this.state = this.#withVersion(message);
        if (message.state !== "connected" && (message.why === "unauthorized" || message.why === "forbidden")) {
          void this.#pairAgain(message.state === "stopped");
        }
        return this.#dispatch("state", this.state);
      case "catalogue":
        this.catalogue = message;
        return this.#dispatch("catalogue", message);
      case "activity":
        return this.#dispatch("activity", message);
      case "approve":
        return this.#requestApproval(message);
      case "approve_over":
        return this.#approvals.end(message.call);
      case "cancel":
        return this.#calls.cancel(message.call, message.reason);
      case "answer":
        return this.#calls.answer(message);
      case "ping":
        return this.#post({ t: "pong" });
      case "refused":
        console.error(`tabrelay: "${message.name}" (${message.kind}) was refused: ${message.message}`);
        return this.#dispatch("refused", message);
      case "module_failed":
        console.error(`tabrelay: ${message.url} could not be loaded: ${message.message}`);
        return this.#dispatch("module_failed", message);
    }
  }

  /** @param {ApproveMessage} message */
  #requestApproval(message) {
    const post = this.#host.reply;
    this.#approvals.ask(
      message,
      (detail) => !this.dispatchEvent(new CustomEvent("approval", { detail, cancelable: true })),
      (decision) => post({ t: "approval", call: message.call, decision }),
    );
  }

  /**
   * What both know works; but somebody should know that the app's copy has grown old.
   * @param {State} state
   * @returns {State}
   */
  #withVersion(state) {
    if (!this.#isOutdated || state.state !== "connected" || state.why) return state;
    const message = `This app's copy of the client is of another version than the relay. ` +
      `Bundle it anew: npm install ${this.#relay}/-/tabrelay.tgz`;
    return { ...state, why: "version", message };
  }

  /** @param {FromPage} message */
  #post(message) {
    this.#host.post(message);
  }

  // -- telling the page ---------------------------------------------------------------------------------------------

  /**
   * @param {State["state"]} state
   * @param {Why | null} why
   * @param {string} message
   * @param {{retry_in_ms?: number | null, attempts?: number}} [more]
   */
  #setState(state, why, message, more) {
    this.state = this.#makeState(state, why, message, more);
    this.#dispatch("state", this.state);
  }

  /**
   * @param {State["state"]} state
   * @param {Why | null} why
   * @param {string} message
   * @param {{retry_in_ms?: number | null, attempts?: number}} [more]
   * @returns {State}
   */
  #makeState(state, why, message, { retry_in_ms = null, attempts = 0 } = {}) {
    const since_ms = Date.now();
    return { state, why, message, retry_in_ms, server: this.#server, since_ms, attempts };
  }

  /**
   * @param {string} type
   * @param {object | null} detail
   */
  #dispatch(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** @param {number} [ms] */
  async #pause(ms) {
    this.#wake = new AbortController();
    await pause(ms, AbortSignal.any([this.#wake.signal, this.#closing.signal]));
  }
}
