/**
 * Page at the address of an MCP server, for a person who opens it in a browser: what the address is, and how to connect a client.
 *
 * The page is the same for every name and holds no secret: the relay does not say whether there is such a server. In a browser
 * that is paired with the relay, the page asks for the status with its key, as the relay's page does, and shows the server's state.
 */

import { askRelay, isPaired } from "/-/client/redeem_code.js";
import { clientPanel, command, sibling } from "./clients.js";
import { byId, setText } from "./element.js";

const POLL_MS = 2000;
const ANSWER_MS = 5000;
/** The first segment of a path: a name that the relay could have. Anything else is shown as text only. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(~[A-Za-z0-9_-]{1,64})?$/u;

/** @type {Record<string, string>} */
const LOOKS = { online: "is-ok", idle: "is-warn", offline: "is-warn", unknown: "is-bad", error: "is-bad", relay_down: "is-bad" };

const state = byId("state", HTMLElement);
const [, name = ""] = location.pathname.split("/");
const url = `${location.origin}/${name}`;
let tokenCommand = "tabrelay token";

/**
 * @param {string} kind
 * @param {string} text
 * @param {string} [todo]
 */
function show(kind, text, todo) {
  state.dataset.state = kind;
  state.className = `notice ${LOOKS[kind] ?? ""}`;
  setText(byId("state-text", HTMLElement), text);
  const box = byId("state-todo", HTMLElement);
  box.hidden = !todo;
  if (todo && box.querySelector("code")?.textContent !== todo) box.replaceChildren(command(todo));
}

function showCommands() {
  const commands = ["status", "doctor"].map((verb) => command(sibling(tokenCommand, verb)));
  byId("commands", HTMLElement).replaceChildren(command(`${sibling(tokenCommand, "tools")} ${name}`), ...commands);
}

/** @param {{ state: string, tools: unknown[] } | undefined} server */
function showServer(server) {
  if (!server) {
    return show("unknown", `The relay knows no server “${name}”. Open a page that offers it, or see the console for other servers.`);
  }
  const count = server.tools.length === 1 ? "1 tool" : `${server.tools.length} tools`;
  if (server.state === "online") return show("online", `“${name}” is online and offers ${count}.`);
  if (server.state === "idle") {
    return show("idle", `No page that offers “${name}” is open. Its worker still answers, with ${count}.`);
  }
  show("offline", `“${name}” is offline. Open its page to connect it. Clients still see its last list of ${count}.`);
}

async function poll() {
  if (!isPaired()) {
    const text = "Only a paired browser sees the state of servers. This command prints a pairing link:";
    return show("not_paired", text, sibling(tokenCommand, "pair"));
  }
  try {
    const answer = await askRelay("/-/status", { signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) return show("error", `The relay answered with status ${answer.status}.`);
    const status = await answer.json();
    if (status.token_command !== tokenCommand) {
      tokenCommand = status.token_command;
      showCommands();
    }
    recipes.update({ name, url, tokenCommand });
    showServer(status.servers.find((/** @type {{ name: string }} */ one) => one.name === name));
  } catch {
    show("relay_down", `Nothing answers at ${location.origin}.`);
  }
}

async function keepPolling() {
  if (!document.hidden) await poll();
  setTimeout(() => void keepPolling(), POLL_MS);
}

const recipes = clientPanel(byId("recipes", HTMLElement), "Client");
setText(byId("address", HTMLElement), url);
if (NAME.test(name)) {
  document.title = `${name} · MCP server · Tabrelay`;
  recipes.update({ name, url, tokenCommand });
  showCommands();
  byId("connect", HTMLElement).hidden = byId("check", HTMLElement).hidden = false;
  void keepPolling();
} else {
  show("unknown", "This is not the name of a server.");
}
