/**
 * `Connection`: one tab's attachment to one server.
 *
 * The link to the relay belongs to the worker and outlives this page. The connection attaches the tab again after a worker
 * crash, a return from the back/forward cache and a relay restart, and passes messages between the worker and the page. It
 * contains no MCP: `startup.js` starts the worker, `running_calls.js` runs calls, `offers.js` defines what the tab offers.
 *
 * @import {
 *   App, Boot, Catalogue, ConnectOptions, OfferOptions, Prompt, Resource, Skill, State, Tool
 * } from "../client.js"
 * @import { ApproveMessage, FromPage, FromWorker, OfferKind, Offers as Offered } from "../ports.js"
 */

import { makeApp } from "./apps.js";
import { Approvals } from "./approvals.js";
import { Offers } from "./offers.js";
import { isInstance, MergedOptions } from "./options.js";
import { mayShowPanel, ProblemReporter } from "./problem_reporter.js";
import { bootProblem, Problem } from "./reasons.js";
import { askHealth } from "./relay_health.js";
import { ResourceChanges } from "./resource_changes.js";
import { RunningCalls } from "./running_calls.js";
import { makeSkill } from "./skills.js";
import { Startup } from "./startup.js";
import { ConnectionState } from "./state.js";
import { browserId, tabInfo, watchTab } from "./tab_identity.js";
import { Credential } from "./token.js";
import { isSameRelay } from "./worker_diagnosis.js";
import { WorkerHost } from "./worker_host.js";
import { WorkerModules } from "./worker_modules.js";

/**
 * One tab's attachment to one server. Events: "state", "catalogue", "activity", "boot", "module_failed"; the message is
 * in `event.detail`.
 */
export class Connection extends EventTarget {
  isClosed = false;
  /** The last boot message and the last catalogue, for pages that add their listeners late. @type {Boot | null} */
  boot = null;
  /** @type {Catalogue | null} */
  catalogue = null;
  /** The name of this browser, for servers that several browsers offer. */
  instance;

  #relay;
  #server;
  #credential;
  #modules;
  #options = new MergedOptions();
  #offers = new Offers();
  #changes = new ResourceChanges();
  #calls = new RunningCalls((message, context) => this.#offers.run(message, context));
  #approvals = new Approvals();
  /** Does the page listen for "activity"? */
  #wantsActivity = false;
  /** Does the app show the state itself, because it listens for "state"? */
  #showsState = false;
  #reporter = new ProblemReporter({
    wantsPanel: () => !this.#showsState && !this.isClosed && mayShowPanel(this.#options.panel, this.#credential.isKnown),
    retry: () => this.retry(),
  });
  #host;
  #state;
  #startup;
  /** Why the page left the worker, to come back later. @type {"" | "left" | "frozen"} */
  #suspendedBy = "";
  #closing = new AbortController();

  /**
   * @param {string} relay
   * @param {ConnectOptions} options
   */
  constructor(relay, options) {
    super();
    this.#relay = relay;
    this.#server = options.server;
    this.#credential = new Credential(relay, options.server);
    this.instance = options.instance && isInstance(options.instance) ? options.instance : browserId();
    this.#modules = new WorkerModules(this.#credential.isOwn, (type, detail) => this.#dispatch(type, detail, true));
    this.#host = this.#makeHost(options.mode);
    this.#state = new ConnectionState(relay, options.server, (state, problem) => {
      this.#reporter.report(state, problem);
      this.#dispatch("state", state);
    });
    this.#startup = new Startup({
      relay,
      server: options.server,
      credential: this.#credential,
      host: this.#host,
      state: this.#state,
      closed: this.#closing.signal,
      isSuspended: () => this.#suspendedBy !== "",
      showPairing: (pairing) => !this.#dispatch("pairing", pairing, pairing !== null),
      tokenChanged: () => this.#postToken(),
    });
    this.#merge(options);
    this.#watchPage();
    void this.#startup.start();
  }

  /** The last state, for pages that add their listeners late. @returns {State} */
  get state() {
    return this.#state.current;
  }

  get tab() {
    return this.#startup.tab;
  }

  get mode() {
    return this.#host.mode;
  }

  /** @param {Tool} tool @param {OfferOptions} [options] */
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

  /** @param {App} app @param {OfferOptions} [options] */
  offerApp(app, options) {
    const read = this.#offers.read.bind(this.#offers);
    const { resource, tools } = makeApp(app, { relay: this.#relay, changes: this.#changes, read });
    this.offerResource(resource, options);
    for (const tool of tools) this.offerTool(tool, options);
  }

  /** @param {Skill} skill @param {OfferOptions} [options] */
  async offerSkill(skill, options) {
    for (const resource of await makeSkill(skill)) this.offerResource(resource, options);
  }

  /** @param {string} uri */
  resourceUpdated(uri) {
    this.#changes.notify(uri);
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
   * "activity" takes two messages for every call of every tab, so the worker sends it only to pages that listen for it. An app that
   * listens for "state" shows the state itself.
   * @param {string} type
   * @param {EventListenerOrEventListenerObject | null} listener
   * @param {boolean | AddEventListenerOptions} [options]
   * @override
   */
  addEventListener(type, listener, options) {
    super.addEventListener(type, listener, options);
    if (type === "state") {
      this.#showsState = true;
      this.#reporter.hide();
    }
    if (type !== "activity" || this.#wantsActivity) return;
    this.#wantsActivity = true;
    this.#post({ t: "watch" });
  }

  /** Try now instead of waiting: for the relay, for a pairing, or for a worker that could not start. */
  retry() {
    this.#startup.wake();
    this.#post({ t: "retry" });
  }

  /** Drop the worker's socket as a failing network does. The worker connects again by itself, and running calls continue. */
  interrupt() {
    this.#post({ t: "interrupt" });
  }

  /** Close the worker's connection to the relay, for all tabs, until a tab calls `retry`. */
  stop() {
    this.#post({ t: "stop" });
  }

  /** Detach this tab. The worker and the other tabs continue. */
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#post({ t: "detach" });
    this.#closing.abort();
    this.#startup.wake();
    this.#host.end("The tab closed its connection");
    this.#startup.release();
    this.#reporter.hide();
    this.#state.fail("stopped", new Problem("closed"));
  }

  /**
   * Add the options of a second connect() for this server.
   * @param {ConnectOptions} options
   */
  extend(options) {
    const lacksWorker = this.#state.current.code === "worker_option_missing";
    const hasMore = this.#merge(options);
    if (lacksWorker && options.worker) this.#startup.wake();
    if (options.token) {
      this.#startup.wake();
      void this.#credential.obtain(this.#closing.signal, () => false).then(() => this.#postToken());
    }
    if (hasMore) this.#attach();
  }

  /**
   * @param {ConnectOptions} options
   * @returns {boolean} whether the worker has to load more
   */
  #merge(options) {
    this.#credential.given = options.token ?? this.#credential.given;
    this.#startup.workerFile ??= options.worker;
    const [changed, hasModules] = [this.#options.add(options), this.#modules.merge(options)];
    return changed || hasModules;
  }

  #watchPage() {
    const { signal } = this.#closing;
    watchTab(signal, {
      changed: (info) => {
        this.#post({ t: "tab", ...info });
        // A worker in this tab would be frozen with it: another tab has to run one.
        if (info.frozen && this.#host.isHere) this.#suspend("frozen");
        else if (!info.frozen && this.#suspendedBy === "frozen") this.#resume();
      },
      left: (next) => {
        // A closed tab often looks like a reloaded one: the worker waits a moment for the tab's next page.
        this.#post({ t: "detach", returns: next !== "other_origin", expected: next === "same_origin" });
        this.#calls.cancelAll("The tab was left");
        // In the back/forward cache a page keeps its locks: it would stay the leader without running.
        if (this.#host.mode === "elected") this.#suspend("left");
      },
      returned: () => void this.#startup.identify().then(() => this.#resume() || this.#attach()),
    });
    // Another tab of this origin paired.
    addEventListener("storage", (event) => {
      if (event.key !== this.#credential.name || !event.newValue) return;
      void this.#credential.reload().then((hasNewKey) => {
        if (!hasNewKey) return;
        this.#startup.wake();
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
    if (wasSuspended) void this.#startup.start();
    return wasSuspended;
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
      died: () => void this.#startup.restart(),
      failed: (url, relay) => void this.#startup.retryAfter(url, relay),
      silent: (url, ended) => this.#startup.checkSilentWorker(url, ended),
      unresponsive: () => void this.#startup.afterSilence(),
      isRelay: (relay) => isSameRelay(relay, this.#relay),
      canReachRelay: async () => (await askHealth(this.#relay, this.#closing.signal)) !== undefined,
    });
  }

  #attach() {
    const { approve, about } = this.#options;
    this.#post({
      t: "attach",
      tab: { id: this.tab.id, ...tabInfo(), watches: this.#wantsActivity, about, ...(approve ? { approve } : {}) },
      lock: this.#startup.lock,
      server: this.#server,
      ...this.#credential.forWorker(),
      ...this.#modules.forWorker(),
      instance: this.instance,
      readsText: true,
      readsRequests: true,
      ...this.#options.forWorker(),
    });
    const offers = this.#offers.definitions();
    if (Object.keys(offers).length) this.#post({ t: "offer", ...offers });
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
        this.#state.fail("stopped", bootProblem(message.detail ?? "", this.#relay));
        // A `retry` message ends the failed worker, and the page then starts another one.
        // defence: a page that is loaded while the relay is down: a worker that failed is started again
        return void this.#startup.afterFailure().then(() => this.#post({ t: "retry" }));
      case "state":
        // While this page obtains a token, the worker's complaint about the old one adds nothing.
        if (this.#startup.isPairing && message.state !== "connected") return;
        if (message.state === "connected") this.#startup.succeeded();
        if (message.state !== "connected" && (message.why === "unauthorized" || message.why === "forbidden")) {
          void this.#startup.pairAgain(message.state === "stopped");
        }
        return this.#state.receive(message);
      case "catalogue":
        this.catalogue = message;
        this.#offers.compareNames(message);
        return void this.#dispatch("catalogue", message);
      case "activity":
        return void this.#dispatch("activity", message);
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
        console.error(`tabrelay: "${message.name}" (${message.kind}) was refused: ${message.message} [TR473]`);
        return void this.#dispatch("refused", message);
      case "console":
        return console[message.level](`tabrelay: ${message.text}`);
      case "module_failed":
      case "module_loaded":
      case "package":
        return this.#modules.receive(message);
    }
  }

  /** @param {ApproveMessage} message */
  #requestApproval(message) {
    const post = this.#host.reply;
    this.#approvals.ask(
      message,
      (detail) => !this.#dispatch("approval", detail, true),
      (decision) => post({ t: "approval", call: message.call, decision }),
    );
  }

  #postToken() {
    this.#post({ t: "token", ...this.#credential.forWorker() });
  }

  /** @param {FromPage} message */
  #post(message) {
    this.#host.post(message);
  }

  /**
   * @param {string} type
   * @param {object | null} detail
   * @param {boolean} [cancelable]
   * @returns {boolean} false: a listener called `preventDefault()`
   */
  #dispatch(type, detail, cancelable = false) {
    return this.dispatchEvent(new CustomEvent(type, { detail, cancelable }));
  }
}
