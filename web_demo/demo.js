/**
 * Entry point of the demo page: connects its parts with the connection's events.
 *
 * It shows what the worker reports and decides nothing. It offers no tool: see page_tools.js and tools.py.
 */

import { clientPanel } from "/-/page/clients.js";
import { byId, setText } from "/-/page/element.js";
import { toast } from "/-/page/toast.js";
import { askRelay } from "/-/client/redeem_code.js";
import { CallList } from "./calls.js";
import { CallPath } from "./call_path.js";
import { CanvasView } from "./drawing/canvas.js";
import { OWN_CLIENT } from "./drawing/people.js";
import { Guide } from "./guide.js";
import { GuideProgress } from "./guide_progress.js";
import { StatusText } from "./status_text.js";
import { describeTab } from "./tab.js";
import { ToolList } from "./tool_list.js";

/**
 * @typedef {import("/-/client.js").State} StateMessage
 * @typedef {import("/-/client.js").Boot} BootMessage
 * @typedef {import("/-/client.js").Catalogue} CatalogueMessage
 * @typedef {import("/-/client.js").Activity} ActivityMessage
 * @typedef {typeof import("./page_tools.js").connection} Connection
 */

const SERVER = "demo";
const EXAMPLE = { tool: "add", arguments: { a: 2, b: 3 }, prompt: `Look at my drawing on ${SERVER}, and add a tree.` };
/** When the guide cuts the connection of its long call. */
const CUT_AFTER_MS = 1500;
/** The label of the worker, and the style of the track to the tabs, while the worker starts. */
const BOOTS = /** @type {const} */ ({
  download: ["starting", "caution"],
  start: ["starting", "caution"],
  ready: ["Python", "clear"],
  failed: ["not running", "dark"],
});

/** From the relay's status; until that arrives, derived from the page's address. */
const place = { origin: location.origin, url: `${location.origin}/${SERVER}`, tokenCommand: "tabrelay token", server: SERVER };

/** @type {Connection | null} */
let connection = null;
/** @type {StateMessage | null} */
let lastState = null;
/** @type {CatalogueMessage["tools"]} */
let lastTools = [];
let hasClient = false;

const panel = clientPanel(byId("connect-panel", HTMLElement), "MCP clients");
const path = new CallPath(describeOwner);
const tools = new ToolList(SERVER);
const log = new CallList(describeOwner);
const progress = new GuideProgress();
const guide = new Guide(progress, { run: (tool) => void runTool(tool), cut: runAndCut });
const statusPanel = new StatusText((action) => (action === "reload" ? location.reload() : connection?.retry()));

/** @param {string} owner */
function describeOwner(owner) {
  if (owner === "worker") return "worker";
  return owner === connection?.tab.id ? "this tab" : "another tab";
}

/** @param {string} name */
function runTool(name) {
  const running = tools.run(name);
  if (!running) toast(`${name} is not offered yet. Wait until the page is connected.`);
  return running;
}

/** A long call, whose connection is lost while it runs. */
async function runAndCut() {
  const running = runTool("draw_spiral");
  if (!running) return;
  setTimeout(() => connection?.interrupt(), CUT_AFTER_MS);
  await running;
}

function showPlace() {
  const { url, tokenCommand } = place;
  panel.update({ name: SERVER, url, tokenCommand, example: EXAMPLE });
  guide.setPlace({ url, tokenCommand, server: SERVER });
}

/** @param {StateMessage} state */
function onState(state) {
  const wasConnected = lastState?.state === "connected";
  const isConnected = state.state === "connected";
  lastState = state;
  path.setTrack("worker", statusPanel.show(state, place));
  path.connection(isConnected);
  progress.connection(isConnected);
  showPath();
  if (isConnected !== wasConnected) tools.connection(isConnected);
  if (isConnected && !wasConnected) void askStatus();
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
  // From now on the panel shows the state again.
  if (boot.stage === "ready" && lastState) onState(lastState);
}

/** @param {CatalogueMessage} message */
function onCatalogue({ tools: entries, tabs = 1 }) {
  lastTools = entries;
  tools.show(entries, connection?.tab.id ?? "");
  progress.tabs(tabs);
  showPath();
}

/** Show which tab receives calls, and which client sends them. There are none while the relay can't be reached. */
function showPath() {
  const id = connection?.tab.id ?? "";
  const isConnected = lastState?.state === "connected";
  path.setTrack("relay", isConnected && hasClient ? "clear" : "dark");
  const described = describeTab(lastTools, id, isConnected);
  path.setLabel("tabs", described.short);
  const note = byId("tab", HTMLElement);
  note.hidden = !id;
  note.dataset.target = String(described.isTarget);
  setText(note, described.text);
}

/** @param {ActivityMessage} reported */
function onActivity(reported) {
  const activity = { ...reported, client: clientName(reported.client) };
  path.setLabel("client", activity.client);
  hasClient = true;
  showPath();
  path.show(activity);
  log.show(activity);
  progress.activity(reported);
}

/** @param {string | undefined} name as the client calls itself */
function clientName(name) {
  if (name === OWN_CLIENT) return "this page";
  return name || "unnamed client";
}

/** @param {import("/-/client.js").Approval} approval */
function onApproval({ name }) {
  path.asks(name);
  progress.asks(name);
}

/** Read the relay's addresses from its status. Without an answer the derived ones stay. */
async function askStatus() {
  try {
    const answer = await askRelay("/-/status", { signal: AbortSignal.timeout(5_000) });
    if (!answer.ok) return;
    const status = await answer.json();
    place.tokenCommand = status.token_command;
    const own = status.servers.find((/** @type {{ name: string }} */ { name }) => name === SERVER);
    if (own?.mcp_url) place.url = own.mcp_url;
    showPlace();
  } catch {
    // The connection's state already shows that the relay is gone.
  }
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
  on("approval", onApproval);
  if (made.boot) onBoot(made.boot);
  onState(made.state);
  if (made.catalogue) onCatalogue(made.catalogue);
}

async function start() {
  path.setLabel("relay", location.port ? `port ${location.port}` : location.host);
  path.setLabel("tabs", "this one");
  showPlace();
  // A pairing link that is opened in this page changes only the fragment, which does not reload the page.
  addEventListener("hashchange", () => location.hash.startsWith("#pair=") && location.reload());
  try {
    // Imported here, so that the page can show an error of the import.
    const own = await import("./page_tools.js");
    new CanvasView(own.drawing, toast);
    listen(own.connection);
  } catch (error) {
    couldNotStart(String(error));
  }
}

void start();
