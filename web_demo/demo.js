/**
 * Entry point of the demo page: shows the connection, the tools and the calls.
 *
 * It draws what the worker reports and decides nothing. It offers no tool itself: see page_tools.js, page_tools.py and tools.py.
 */

import { clientPanel } from "/-/page/clients.js";
import { byId, setText } from "/-/page/element.js";
import { askRelay } from "/-/client/redeem_code.js";
import { CallList } from "./calls.js";
import { catalogue } from "./catalogue.js";
import { callPath } from "./call_path.js";
import { startPython } from "./python.js";
import { StatusText } from "./status_text.js";
import { describeTab } from "./tab.js";

/**
 * @typedef {import("/-/client.js").State} StateMessage
 * @typedef {import("/-/client.js").Boot} BootMessage
 * @typedef {import("/-/client.js").Catalogue} CatalogueMessage
 * @typedef {import("/-/client.js").Activity} ActivityMessage
 * @typedef {typeof import("./page_tools.js").connection} Connection
 */

const SERVER = "demo";
const EXAMPLE = { tool: "add", arguments: { a: 2, b: 3 }, prompt: `Use ${SERVER} to add 2 and 3.` };
/** The label of the worker, and the style of the track to the tabs, while the worker starts. */
const BOOTS = /** @type {const} */ ({
  download: ["starting", "caution"],
  start: ["starting", "caution"],
  ready: ["Python", "clear"],
  failed: ["not running", "dark"],
});

/** From the relay's status; until that arrives, derived from the page's address. */
const place = { origin: location.origin, tokenCommand: "tabrelay token", server: SERVER };

/** @type {Connection | null} */
let connection = null;
/** @type {StateMessage | null} */
let lastState = null;
/** @type {CatalogueMessage["tools"]} */
let lastTools = [];
let hasClient = false;

const panel = clientPanel(byId("connect-panel", HTMLElement), "MCP clients");
const path = callPath();
const tools = catalogue();
const log = new CallList(nameOwner, (inFlight) => path.busy(inFlight > 0));
const statusPanel = new StatusText((action) => (action === "reload" ? location.reload() : connection?.retry()));

/** @param {string} owner */
function nameOwner(owner) {
  if (owner === "worker") return "worker";
  return owner === connection?.tab.id ? "this tab" : "another tab";
}

/** @param {string} [url] */
function showConnect(url = `${place.origin}/${SERVER}`) {
  panel.update({ name: SERVER, url, tokenCommand: place.tokenCommand, example: EXAMPLE });
}

/** @param {StateMessage} state */
function onState(state) {
  lastState = state;
  path.setTrack("worker", statusPanel.show(state, place));
  showPath();
  if (state.state === "connected") void askStatus();
}

/**
 * There is no connection that could report it.
 *
 * @param {string} message
 */
function couldNotStart(message) {
  const nothing = { retry_in_ms: null, server: SERVER, since_ms: Date.now(), attempts: 0 };
  onState({ state: "stopped", why: "boot_failed", code: "start_failed", message, ...nothing });
}

/** @param {BootMessage} boot */
function onBoot(boot) {
  statusPanel.boot(boot);
  const [label, track] = BOOTS[boot.stage];
  path.setLabel("worker", label);
  path.setTrack("tabs", track);
  if (boot.stage !== "ready") return;
  // From now on the panel shows the state again.
  if (lastState) onState(lastState);
  startPythonOnce();
}

/** @param {CatalogueMessage} message */
function onCatalogue({ tools: entries }) {
  lastTools = entries;
  tools.show(entries, connection?.tab.id ?? "");
  showPath();
}

/** Show which tab receives calls, and which client sends them. There are none while the relay can't be reached. */
function showPath() {
  const id = connection?.tab.id ?? "";
  const isConnected = lastState?.state === "connected";
  path.setTrack("relay", isConnected && hasClient ? "clear" : "dark");
  setText(byId("tools-title", HTMLElement), isConnected ? "Tools on offer" : "Tools");
  const described = describeTab(lastTools, id, isConnected);
  path.setLabel("tabs", described.short);
  const note = byId("tab", HTMLElement);
  note.hidden = !id;
  note.dataset.target = String(described.isTarget);
  setText(note, described.text);
}

/** @param {ActivityMessage} activity */
function onActivity(activity) {
  path.setLabel("client", activity.client || "unnamed");
  hasClient = true;
  showPath();
  log.show(activity);
}

/** Read the relay's addresses from its status. Without an answer the derived ones stay. */
async function askStatus() {
  try {
    const answer = await askRelay("/-/status", { signal: AbortSignal.timeout(5_000) });
    if (!answer.ok) return;
    const status = await answer.json();
    place.tokenCommand = status.token_command;
    const own = status.servers.find((/** @type {{ name: string }} */ { name }) => name === SERVER);
    showConnect(own?.mcp_url);
    setText(byId("version", HTMLElement), `Tabrelay ${status.version} · ${status.build}`);
  } catch {
    // The connection's state already shows that the relay is gone.
  }
}

/** Python in the page starts after the worker's: two starts at a time would slow each other down. */
function startPythonOnce() {
  if (document.querySelector('script[type="py"]')) return;
  const note = byId("tools-note", HTMLElement);
  /** @param {string} message */
  const complain = (message) => {
    note.hidden = false;
    setText(note, `Python in this page (PyScript) failed: ${message}`);
  };
  startPython("/-/demo/page_tools.py", complain).catch((error) => complain(String(error)));
}

/** @param {Connection} made */
function listen(made) {
  connection = made;
  /** @param {string} kind @param {(detail: any) => void} handle */
  const on = (kind, handle) =>
    made.addEventListener(kind, (event) => handle(/** @type {CustomEvent} */ (event).detail));
  on("boot", onBoot);
  on("state", onState);
  on("catalogue", onCatalogue);
  on("activity", onActivity);
  if (made.boot) onBoot(made.boot);
  onState(made.state);
  if (made.catalogue) onCatalogue(made.catalogue);
}

async function start() {
  path.setLabel("relay", location.host);
  path.setLabel("tabs", "this one");
  showConnect();
  // A pairing link that is opened in this page changes only the fragment, which does not reload the page.
  addEventListener("hashchange", () => location.hash.startsWith("#pair=") && location.reload());
  try {
    // Imported here, so that the page can show an error of the import.
    listen((await import("./page_tools.js")).connection);
  } catch (error) {
    couldNotStart(String(error));
  }
}

void start();
