/**
 * The relay's own page: pairs by the link it was opened with, then asks the relay how its servers are, every two seconds while
 * somebody looks.
 *
 * It serves no tools and holds no link; the demo and other pages do that.
 */

import { command } from "./clients.js";
import { byId, setText } from "./element.js";
import { serverCard } from "./server.js";

/**
 * @typedef {import("./server.js").Server} Server
 * @typedef {{ version: string, build: string, url: string, token_command: string, servers: Server[] }} Status
 * @typedef {{ lamp: "clear" | "caution" | "stop" | "dark", state: string, title: string, text: string, command?: string }} Notice
 */

const TOKEN_KEY = "tabrelay.token";
const POLL_MS = 2000;
const ANSWER_MS = 5000;

const section = byId("relay", HTMLElement);
const house = byId("house", HTMLElement);
const list = byId("servers", HTMLElement);
/** @type {Map<string, ReturnType<typeof serverCard>>} */
const cards = new Map();

/** How this relay is called on the command line; it says so itself once it has let us in. */
let program = "tabrelay";
/** @type {string | null} why the last pairing link did not work */
let pairingProblem = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {Notice} notice */
function say(notice) {
  section.dataset.state = notice.state;
  byId("relay-lamp", HTMLElement).dataset.lamp = notice.lamp;
  setText(byId("relay-title", HTMLElement), notice.title);
  setText(byId("relay-text", HTMLElement), notice.text);
  const todo = byId("relay-todo", HTMLElement);
  todo.hidden = !notice.command;
  if (notice.command && todo.querySelector("code")?.textContent !== notice.command) {
    todo.replaceChildren(command(notice.command));
  }
}

function sayNotPaired() {
  house.hidden = true;
  const why = pairingProblem ?? "The relay shows its servers only to a browser that came through a pairing link.";
  say({
    lamp: "stop",
    state: "not_paired",
    title: "This browser is not paired",
    text: `${why} Get a link in a terminal, and open it here:`,
    command: `${program} pair`,
  });
}

function sayDown() {
  const { port } = location;
  house.classList.add("stale");
  say({
    lamp: "stop",
    state: "relay_down",
    title: "The relay is not running",
    text: `Nothing answers at ${location.origin}. What you see below is the last that was known. To start it again:`,
    command: `${program} serve${port === "" || port === "4747" ? "" : ` --port ${port}`}`,
  });
}

/** @param {Status} status */
function showStatus(status) {
  program = status.token_command.replace(/ token$/, "");
  const online = status.servers.filter(({ state }) => state === "online").length;
  const total = status.servers.length;
  say({
    lamp: "clear",
    state: "running",
    title: "The relay is running",
    text: `At ${status.url}, with ${total === 1 ? "1 server" : `${total} servers`}, ${online} online.`,
  });
  house.hidden = false;
  house.classList.remove("stale");
  setText(byId("version", HTMLElement), `Tabrelay ${status.version} · ${status.build}`);
  byId("servers-empty", HTMLElement).hidden = total > 0;
  showServers(status);
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
      card = serverCard(server.name);
      cards.set(server.name, card);
      list.append(card.root);
    }
    card.update(server, token_command);
  }
}

/** Trades the code in the address for a token, and takes it out of the address at once. */
async function pair() {
  const code = /^#pair=(.+)$/.exec(location.hash)?.[1];
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const answer = await fetch("/-/pair", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code: decodeURIComponent(code) }),
    });
    const said = await answer.json();
    if (answer.ok) localStorage.setItem(TOKEN_KEY, said.token);
    pairingProblem = answer.ok ? null : `The link did not work: ${said.error === "expired" ? "it has expired" : "it is not known, or was used before"}.`;
  } catch {
    pairingProblem = "The link could not be tried, because the relay did not answer.";
  }
}

async function poll() {
  const token = localStorage.getItem(TOKEN_KEY);
  if (!token) return sayNotPaired();
  try {
    const answer = await fetch("/-/status", {
      headers: { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (answer.ok) return showStatus(await answer.json());
    if (answer.status === 401 || answer.status === 403) return sayNotPaired();
    say({ lamp: "stop", state: "error", title: "The relay is in trouble", text: `It answered with status ${answer.status}.` });
  } catch {
    sayDown();
  }
}

/** One poll at a time, and none while nobody looks. */
async function keepPolling() {
  clearTimeout(timer);
  if (document.hidden) return;
  await poll();
  clearTimeout(timer);
  timer = setTimeout(() => void keepPolling(), POLL_MS);
}

addEventListener("hashchange", () => void pair().then(keepPolling));
// Another tab may have paired meanwhile: the token is shared by all pages of this origin.
addEventListener("storage", ({ key }) => key === TOKEN_KEY && void keepPolling());
document.addEventListener("visibilitychange", () => void keepPolling());

await pair();
await keepPolling();
