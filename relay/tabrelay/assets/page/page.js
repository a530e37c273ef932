/**
 * Entry point of the relay's page: pairing, and polling of the relay's status.
 *
 * It pairs with the code of its address, and then polls every 2 s while the page is visible. It offers no tools and starts no
 * worker: the demo and other pages do.
 */

import { askRelay, isPaired, pair, TOKEN_KEY } from "/-/client/redeem_code.js";
import { Unproven } from "/-/proof.js";
import { callsPanel } from "./calls.js";
import { command, sibling, startCommand } from "./clients.js";
import { byId, setText } from "./element.js";
import { nodesPanel } from "./nodes.js";
import { pairsPanel } from "./pairs.js";
import { refusedPanel } from "./refused.js";
import { serverCard } from "./server.js";

/**
 * @typedef {import("./server.js").Server} Server
 * @typedef {{ version: string, build: string, url: string, token_command: string, servers: Server[],
 *   nodes?: import("./nodes.js").RelayNode[], refused?: import("./refused.js").Refused[] }} Status
 * @typedef {{ look: "ok" | "bad", state: string, title: string, text: string, command?: string }} Notice
 */

const POLL_MS = 2000;
const ANSWER_MS = 5000;

const section = byId("relay", HTMLElement);
const content = byId("house", HTMLElement);
const list = byId("servers", HTMLElement);
/** @type {Map<string, ReturnType<typeof serverCard>>} */
const cards = new Map();
const pairs = pairsPanel(decide);
const calls = callsPanel();
const nodes = nodesPanel();
const refused = refusedPanel();

/** The command that prints this relay's token; the relay's status contains it. */
let tokenCommand = "tabrelay token";
/** @type {string | undefined} why the last pairing link did not work */
let problem;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {Notice} notice */
function showNotice(notice) {
  section.dataset.state = notice.state;
  section.className = `notice is-${notice.look}`;
  setText(byId("relay-title", HTMLElement), notice.title);
  setText(byId("relay-text", HTMLElement), notice.text);
  const todo = byId("relay-todo", HTMLElement);
  todo.hidden = !notice.command;
  if (notice.command && todo.querySelector("code")?.textContent !== notice.command) {
    todo.replaceChildren(command(notice.command));
  }
}

function showNotPaired() {
  content.hidden = true;
  pairs.hide();
  calls.hide();
  nodes.hide();
  refused.hide();
  showNotice({
    look: "bad",
    state: "not_paired",
    title: "This browser is not paired with the relay",
    text: problem ?? "The relay shows its servers only to paired browsers. This command prints a pairing link:",
    command: sibling(tokenCommand, "pair"),
  });
}

function showDown() {
  content.classList.add("stale");
  showNotice({
    look: "bad",
    state: "relay_down",
    title: "The relay is not running",
    text: `Nothing answers at ${location.origin}. The servers below are as they were last seen. To start the relay again:`,
    command: startCommand(tokenCommand, "serve", location.origin),
  });
}

/** @param {string} text */
function showUnproven(text) {
  content.classList.add("stale");
  showNotice({ look: "bad", state: "unproven", title: "This is not your relay", text });
}

/** @param {Status} status */
function showStatus(status) {
  tokenCommand = status.token_command;
  const online = status.servers.filter(({ state }) => state === "online").length;
  const idle = status.servers.filter(({ state }) => state === "idle").length;
  const total = status.servers.length;
  showNotice({
    look: "ok",
    state: "running",
    title: "The relay is running",
    text: total === 0 ? `At ${status.url}.` : `At ${status.url}, with ${online} of ${total} servers online${idle ? `, and ${idle} without an open page` : ""}.`,
  });
  content.hidden = false;
  content.classList.remove("stale");
  byId("servers-empty", HTMLElement).hidden = total > 0;
  showServers(status);
  nodes.update(status.nodes, status.version);
  refused.update(status.refused);
}

/** @param {Status} status */
function showServers({ servers, token_command }) {
  const names = new Set(servers.map(({ name }) => name));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    card.root.remove();
    cards.delete(name);
  }
  for (const server of servers) {
    let card = cards.get(server.name);
    if (!card) {
      card = serverCard(server.name, { accept, reconnect });
      cards.set(server.name, card);
      list.append(card.root);
    }
    card.update(server, token_command);
  }
}

/**
 * @param {string} path
 * @param {object} [body] what to POST
 */
function request(path, body) {
  const signal = AbortSignal.timeout(ANSWER_MS);
  return askRelay(path, body ? { method: "POST", signal, body: JSON.stringify(body) } : { signal });
}

/** @param {import("./pairs.js").Decision} decision */
async function decide(decision) {
  try {
    const answer = await request("/-/pairs", decision);
    const problem = answer.ok ? undefined : String((await answer.json()).message);
    void keepPolling();
    return problem;
  } catch {
    return "The relay does not answer.";
  }
}

/** @param {string} name */
async function accept(name) {
  // After a failure the notice stays visible.
  await request("/-/drift", { accept: name }).catch(() => undefined);
  void keepPolling();
}

/** @param {string} name */
async function reconnect(name) {
  // The next poll shows the outcome.
  await request(`/-/upstreams/${encodeURIComponent(name)}/reconnect`, {}).catch(() => undefined);
  void keepPolling();
}

async function showPairs() {
  const answer = await request("/-/pairs");
  // A token of an earlier version may not read the pairs: then there is nothing to show.
  if (answer.ok) pairs.update(await answer.json());
  else pairs.hide();
}

async function showCalls() {
  const answer = await request(`/-/calls?since=${encodeURIComponent(calls.mark)}`);
  if (answer.ok) calls.update(await answer.json(), sibling(tokenCommand, "logs"));
  else calls.hide();
}

async function poll() {
  if (!isPaired()) return showNotPaired();
  try {
    const answer = await request("/-/status");
    if (answer.ok) {
      showStatus(await answer.json());
      await showPairs();
      return await showCalls();
    }
    if (answer.status === 401 || answer.status === 403) return showNotPaired();
    const text = `It answered with status ${answer.status}.`;
    showNotice({ look: "bad", state: "error", title: "The relay has a problem", text });
  } catch (error) {
    const why = error instanceof Unproven ? error.why : "";
    if (why === "unauthorized") showNotPaired();
    else if (why === "unproven") showUnproven(String(/** @type {Error} */ (error).message));
    else showDown();
  }
}

async function start() {
  ({ problem } = await pair());
  await keepPolling();
}

/** One poll at a time, and none while the page is hidden. */
async function keepPolling() {
  clearTimeout(timer);
  if (document.hidden) return;
  await poll();
  clearTimeout(timer);
  timer = setTimeout(() => void keepPolling(), POLL_MS);
}

// A pairing link that is opened in this page changes only the fragment.
addEventListener("hashchange", () => void start());
// Another tab may have paired meanwhile: all pages of this origin share the keys.
addEventListener("storage", ({ key }) => key === TOKEN_KEY && void keepPolling());
document.addEventListener("visibilitychange", () => void keepPolling());

await start();
