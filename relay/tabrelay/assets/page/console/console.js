/**
 * Entry point of the console: puts together live stream, status, overview, traffic and drawer.
 *
 * It pairs with the code of its address first. It offers no tools and starts no worker: the demo and other pages do.
 */

import { isPaired, pair, TOKEN_KEY } from "/-/client/redeem_code.js";
import { sibling, startCommand } from "../clients.js";
import { byId, element, setText } from "../element.js";
import { nodesPanel } from "../nodes.js";
import { pairsPanel } from "../pairs.js";
import { refusedPanel } from "../refused.js";
import { BreakpointsPanel } from "./breakpoints_panel.js";
import { callActions } from "./call_actions.js";
import { CallRunner } from "./call_runner.js";
import { CallStore } from "./call_store.js";
import { callView } from "./call_view.js";
import { Drawer } from "./drawer.js";
import { faultsPanel } from "./faults_panel.js";
import { FilterBar } from "./filter_bar.js";
import { LiveFeed } from "./live_feed.js";
import { Overview } from "./overview.js";
import { ask, readDetail, readDetails } from "./relay_api.js";
import { showFeed, showNotice } from "./relay_state.js";
import { rowOfLog, titleOf } from "./rows.js";
import { statsOf } from "./server_stats.js";
import { serverParts } from "./server_parts.js";
import { serverView } from "./server_view.js";
import { SessionMode } from "./session_mode.js";
import { StatusReader } from "./status_reader.js";
import { makeToolbar } from "./toolbar.js";
import { sampledText, Traffic } from "./traffic.js";
import { setUrlValues, urlValue } from "./url_state.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {import("./server_texts.js").Server} Server
 * @typedef {{ version: string, build: string, url: string, token_command: string, servers: Server[],
 *   nodes?: import("../nodes.js").RelayNode[], refused?: import("../refused.js").Refused[] }} Status
 */

const OVERVIEW_MS = 500;

class ConsolePage {
  #store = new CallStore();
  #feed = new LiveFeed();
  #status = new StatusReader();
  #filterBar = new FilterBar();
  #drawer = new Drawer(byId("drawer", HTMLElement));
  #overview = new Overview((name) => this.openServer(name));
  #traffic = new Traffic(this.#store, this.#filterBar, (row) => this.openCall(row));
  #session = new SessionMode(this.#store, this.#feed);
  #nodes = nodesPanel();
  #refused = refusedPanel();
  #pairs = pairsPanel((decision) => this.#decide(decision));
  /** @type {Status | null} */
  #last = null;
  /** @type {{ name: string, view: ReturnType<typeof serverView> } | null} */
  #server = null;
  #tokenCommand = "tabrelay token";
  /** Why the last pairing link did not work. @type {string | undefined} */
  #pairProblem;
  /** Rows of each server at the last status. @type {Map<string, number>} */
  #totals = new Map();
  #isOverviewDue = false;
  #breakpointsButton = element("button", { type: "button", class: "button is-small" }, "Breakpoints");
  #faultsButton = element("button", { type: "button", class: "button is-small", hidden: true }, "Faults");
  #dropped = 0;

  #runner = new CallRunner(this.#store);
  #breakpoints = new BreakpointsPanel((id) => this.#openId(id));

  async start() {
    this.#listen();
    this.#makeTools();
    await this.#pair();
    this.#openFromAddress();
  }

  async #pair() {
    ({ problem: this.#pairProblem } = await pair());
    if (isPaired() && !this.#session.isOpen) this.#feed.start();
    this.#status.read();
  }

  #listen() {
    // A pairing link that is opened in this page changes only the fragment.
    addEventListener("hashchange", () => void this.#pair());
    // Another tab may have paired meanwhile: all pages of this origin share the keys.
    addEventListener("storage", ({ key }) => key === TOKEN_KEY && void this.#pair());
    this.#feed.addEventListener("state", () => {
      showFeed(this.#feed.state);
      this.#status.read();
    });
    on(this.#feed, "calls", ({ rows }) => this.#store.take(rows));
    on(this.#feed, "status", () => this.#status.read());
    on(this.#feed, "breakpoints", () => void this.#breakpoints.read());
    on(this.#feed, "hello", ({ faults }) => {
      this.#faultsButton.hidden = !faults;
      void this.#breakpoints.restore();
      void this.#readLog();
    });
    on(this.#feed, "sampled", (sampled) => {
      this.#dropped += sampled.dropped;
      byId("calls-sampled", HTMLElement).hidden = false;
      setText(byId("calls-sampled", HTMLElement), sampledText({ ...sampled, dropped: this.#dropped }));
    });
    on(this.#status, "status", (status) => this.#showStatus(status));
    on(this.#status, "pairs", (pairs) => (pairs ? this.#pairs.update(pairs) : this.#pairs.hide()));
    on(this.#status, "problem", ({ problem, text }) => this.#showProblem(problem, text));
    this.#store.addEventListener("change", () => {
      this.#scheduleOverview();
      this.#openFromAddress();
    });
    this.#drawer.addEventListener("change", () => this.#drawerChanged());
  }

  /** Calls of before the console was open, from the call log. */
  async #readLog() {
    if (this.#session.isOpen) return;
    const { calls } = await ask("/-/calls?since=").catch(() => ({ calls: [] }));
    const rows = (calls ?? []).map(rowOfLog).filter((/** @type {Row | null} */ row) => row !== null);
    if (!this.#session.isOpen && !this.#store.rows.some(({ is_log }) => is_log)) this.#store.take(rows);
  }

  /** @param {Status} status */
  #showStatus(status) {
    this.#last = status;
    for (const { name } of status.servers) this.#totals.set(name, this.#store.total(name));
    this.#tokenCommand = status.token_command;
    const online = status.servers.filter(({ state }) => state === "online").length;
    const idle = status.servers.filter(({ state }) => state === "idle").length;
    const total = status.servers.length;
    const servers = `${online} of ${total} servers online${idle ? `, and ${idle} without an open page` : ""}`;
    showNotice({ look: "ok", state: "running", title: "The relay is running", text: total ? `at ${status.url}, with ${servers}.` : `at ${status.url}.` });
    byId("house", HTMLElement).hidden = false;
    byId("calls", HTMLElement).hidden = false;
    document.body.classList.remove("is-stale");
    byId("servers-empty", HTMLElement).hidden = total > 0;
    byId("servers", HTMLElement).hidden = total === 0;
    this.#drawOverview();
    const shown = status.servers.find(({ name }) => name === this.#server?.name);
    if (shown) this.#server?.view.update(shown);
    this.#nodes.update(status.nodes, status.version);
    this.#refused.update(status.refused);
    this.#openFromAddress();
  }

  #drawOverview() {
    if (!this.#last) return;
    // Calls since the last status count too.
    const servers = this.#last.servers.map((server) => ({
      ...server,
      calls: server.calls + this.#store.total(server.name) - (this.#totals.get(server.name) ?? 0),
    }));
    this.#overview.update(servers, statsOf(this.#store.rows, Date.now()));
  }

  #scheduleOverview() {
    if (this.#isOverviewDue) return;
    this.#isOverviewDue = true;
    setTimeout(() => {
      this.#isOverviewDue = false;
      if (!document.hidden) this.#drawOverview();
    }, OVERVIEW_MS);
  }

  /** @param {import("./status_reader.js").Problem} problem @param {string} [text] */
  #showProblem(problem, text = "") {
    if (problem === "not_paired") {
      byId("house", HTMLElement).hidden = true;
      byId("calls", HTMLElement).hidden = !this.#session.isOpen;
      for (const panel of [this.#pairs, this.#nodes, this.#refused]) panel.hide();
      const why = this.#pairProblem ?? "The relay shows its servers only to paired browsers. This command prints a pairing link:";
      return showNotice({ look: "bad", state: problem, title: "This browser is not paired with the relay", text: why, command: sibling(this.#tokenCommand, "pair") });
    }
    document.body.classList.add("is-stale");
    if (problem === "unproven") return showNotice({ look: "bad", state: problem, title: "This is not your relay", text });
    if (problem === "error") return showNotice({ look: "bad", state: problem, title: "The relay has a problem", text });
    showNotice({
      look: "bad",
      state: "relay_down",
      title: "The relay is not running",
      text: `Nothing answers at ${location.origin}. The servers below are as they were last seen. To start the relay again:`,
      command: startCommand(this.#tokenCommand, "serve", location.origin),
    });
  }

  // -- drawer ---------------------------------------------------------------------------------------------------------

  /** @param {string} name @param {string} [part] @param {boolean} [takesFocus] */
  openServer(name, part = "tools", takesFocus = true) {
    const server = this.#last?.servers.find((each) => each.name === name);
    if (!server) return;
    setUrlValues({ server: name, part, call: "" });
    this.#drawer.show({ key: `server:${name}`, title: name, about: server.title ?? "", takesFocus }, (place) => {
      const view = serverView(place, server, this.#tokenCommand, part, {
        accept: (each) => void this.#post("/-/drift", { accept: each }),
        changedTools: (each) => ask(`/-/drift?server=${encodeURIComponent(each)}`),
        reconnect: (each) => void this.#post(`/-/upstreams/${encodeURIComponent(each)}/reconnect`, {}),
        filter: (text) => this.#filterBar.set(text),
        chosen: (chosen) => setUrlValues({ part: chosen }),
        parts: (each, updates) => serverParts(each, updates, { runner: this.#runner, store: this.#store, open: (id) => this.#openId(id), filter: (text) => this.#filterBar.set(text) }),
      });
      this.#server = { name, view };
      view.update(server);
    });
  }

  /** @param {Row} row @param {boolean} [takesFocus] */
  openCall(row, takesFocus = true) {
    setUrlValues({ call: row.id, server: "", part: "" });
    this.#traffic.activate(row.id);
    this.#drawer.show({ key: `call:${row.id}`, title: titleOf(row), about: row.server, takesFocus }, (place, signal) =>
      callView(
        place,
        row.id,
        {
          detail: (id, until) => this.#detail(id, until),
          changes: this.#store,
          find: (id) => this.#store.find(id),
          rounds: (group) => this.#store.rows.filter((each) => each.group === group && each.relay === row.relay),
          open: (each) => this.openCall(each),
          actions: (detail, output) => callActions(detail, output, this.#actionContext()),
        },
        signal,
      ),
    );
  }

  /** A call whose row may not have arrived yet. @param {string} id */
  #openId(id) {
    const row = this.#store.find(id);
    if (row) return this.openCall(row);
    setUrlValues({ call: id });
    this.#drawer.close();
    setUrlValues({ call: id });
  }

  /** @param {string} id @param {AbortSignal} signal */
  async #detail(id, signal) {
    return this.#session.find(id) ?? (await readDetail(id, signal));
  }

  /** @returns {import("./call_actions.js").ActionContext} */
  #actionContext() {
    const find = (/** @type {string} */ name) => this.#last?.servers.find((server) => server.name === name);
    return {
      tokenCommand: () => this.#tokenCommand,
      url: (name) => find(name)?.mcp_url ?? `${location.origin}/${name}`,
      tabs: (name) => [...(find(name)?.tabs ?? []), ...(find(name)?.instances ?? []).flatMap(({ tabs }) => tabs)],
      runner: this.#session.isOpen ? null : this.#runner,
      open: (id) => this.#openId(id),
      cancel: async (id) => void (await ask(`/-/console/calls/${encodeURIComponent(id)}/cancel`, { method: "POST" }).catch(() => undefined)),
    };
  }

  #makeTools() {
    byId("calls-tools", HTMLElement).append(this.#breakpointsButton, this.#faultsButton);
    this.#breakpointsButton.addEventListener("click", () => this.#openBreakpoints());
    this.#faultsButton.addEventListener("click", () => {
      this.#drawer.show({ key: "faults", title: "Faults" }, (place) => place.append(faultsPanel(() => this.#last?.servers ?? [])));
    });
    this.#breakpoints.addEventListener("change", () => {
      const { count, hasBreakpoints } = this.#breakpoints;
      setText(this.#breakpointsButton, count ? `Breakpoints: ${count} held` : hasBreakpoints ? "Breakpoints on" : "Breakpoints");
      this.#breakpointsButton.classList.toggle("is-primary", count > 0);
    });
    makeToolbar({
      traffic: this.#traffic,
      filterBar: this.#filterBar,
      servers: () => this.#last?.servers ?? [],
      openServer: (name, part) => this.openServer(name, part),
      openCall: (row) => this.openCall(row),
      actions: () => [
        { kind: "action", text: "Pause or go on", run: () => byId("calls-pause", HTMLElement).click() },
        { kind: "action", text: "Clear the calls", run: () => byId("calls-clear", HTMLElement).click() },
        { kind: "action", text: "Show errors only", run: () => this.#filterBar.set("status:error") },
        { kind: "action", text: "Remove the filter", run: () => this.#filterBar.set("") },
        { kind: "action", text: "Breakpoints", run: () => this.#openBreakpoints() },
        { kind: "action", text: "Close the drawer", run: () => this.#drawer.close() },
      ],
      exports: {
        rows: () => this.#traffic.shown,
        details: async (ids) => (this.#session.isOpen ? ids.map((id) => this.#session.find(id)).filter((each) => each !== undefined) : readDetails(ids)),
        about: () => ({ version: this.#last?.version ?? "", base: location.origin }),
        opened: (name, session) => {
          this.#drawer.close();
          this.#session.open(name, session);
        },
      },
    });
  }

  #openBreakpoints() {
    this.#drawer.show({ key: "breakpoints", title: "Breakpoints" }, (place) => place.append(this.#breakpoints.root));
    void this.#breakpoints.read();
  }

  #drawerChanged() {
    const { key } = this.#drawer;
    this.#overview.select(key.startsWith("server:") ? key.slice("server:".length) : "");
    if (!key.startsWith("server:")) this.#server = null;
    if (!key) setUrlValues({ call: "", server: "", part: "" });
  }

  /** Open what the address names, as soon as it is known. */
  #openFromAddress() {
    if (this.#drawer.key) return;
    const call = this.#store.find(urlValue("call"));
    if (call) this.openCall(call, false);
    else if (urlValue("server")) this.openServer(urlValue("server"), urlValue("part") || "tools", false);
  }

  // -- decisions ------------------------------------------------------------------------------------------------------

  /** @param {import("../pairs.js").Decision} decision */
  async #decide(decision) {
    try {
      await ask("/-/pairs", { body: decision });
      return undefined;
    } catch (error) {
      return error instanceof Error && error.name === "Refusal" ? error.message : "The relay does not answer.";
    } finally {
      this.#status.read();
    }
  }

  /** @param {string} path @param {object} body */
  async #post(path, body) {
    // After a failure the notice stays visible; the next status shows the outcome.
    await ask(path, { body }).catch(() => undefined);
    this.#status.read();
  }
}

/** @param {EventTarget} target @param {string} type @param {(detail: any) => void} listener */
function on(target, type, listener) {
  target.addEventListener(type, (event) => listener(/** @type {CustomEvent} */ (event).detail));
}

await new ConsolePage().start();
