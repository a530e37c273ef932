/**
 * Entry point of the playground: the editor, its actions, and the tools of the program.
 *
 * A program is executed only when the visitor presses Run (or Ctrl-Enter): not when it is loaded from an address, from the saved
 * programs or from a starting point. The program runs in a sandboxed frame: see program_host.js.
 */

import { createEditor } from "/-/editor/editor.js";
import { byId } from "/-/page/element.js";
import { addActions } from "./program_actions.js";
import { ProgramChoice } from "./program_choice.js";
import { ProgramHost } from "./program_host.js";
import { fromFragment, MAX_SOURCE } from "./share.js";
import { loadProgram, STARTING_POINTS } from "./starting_points.js";
import { ToolList } from "./tool_list.js";

/** @typedef {import("./sandbox.js").Language} Language */
/** @typedef {import("/-/client.js").State} State */

const SERVER = "demo";
const STOP_AFTER_MS = 1000;
const isMac = /Mac|iP(hone|ad)/.test(navigator.platform);

const runButton = byId("run", HTMLButtonElement);
const stopButton = byId("stop", HTMLButtonElement);
const languageChoice = byId("language", HTMLSelectElement);
const faultNote = byId("fault", HTMLElement);
const originNote = byId("origin", HTMLElement);
const tools = new ToolList(byId("tools", HTMLElement), SERVER);

/** @type {ProgramHost | null} */
let host = null;
let isConnected = false;
/** How many programs were run, with or without success. */
let runs = 0;

const editor = createEditor({
  parent: byId("editor", HTMLElement),
  label: "Program",
  maxLength: MAX_SOURCE,
  onRun: () => void run(),
  onChange: () => {},
});

/** @param {string} text */
function say(text) {
  byId("said", HTMLElement).textContent = text;
}

/**
 * @param {HTMLElement} note
 * @param {string} text empty: hidden
 */
function showNote(note, text) {
  note.hidden = !text;
  note.textContent = text;
}

/**
 * Put a program into the editor. Nothing is executed.
 * @param {Language} language
 * @param {string} source
 * @param {string} [origin] where it comes from
 */
function load(language, source, origin = "") {
  languageChoice.value = language;
  editor.load(source, language);
  showNote(faultNote, "");
  showNote(originNote, origin);
  // The address names the program that is shown, or none.
  if (!origin && location.hash.startsWith("#program=")) history.replaceState(null, "", location.pathname);
  say("");
}

async function run() {
  if (!host || runButton.disabled) return;
  const language = /** @type {Language} */ (languageChoice.value);
  runButton.disabled = true;
  showNote(faultNote, "");
  editor.clearError();
  let isReady = language !== "python";
  void host.pythonReady.then(() => (isReady = true), () => {});
  await Promise.resolve();
  const late = setTimeout(() => (stopButton.hidden = false), STOP_AFTER_MS);
  say(isReady ? "Running." : "Python is starting; the program runs when it has.");
  try {
    await host.run(language, editor.text);
    showNote(originNote, "");
  } catch (error) {
    showFault(/** @type {any} */ (error));
  } finally {
    clearTimeout(late);
    stopButton.hidden = tools.isEmpty;
    runButton.disabled = false;
    runButton.dataset.runs = String(++runs);
  }
}

/** @param {Error & { line?: number, column?: number }} fault */
function showFault({ message, line = 0, column = 0 }) {
  const text = /\[TR\d{3}\]/.test(message) ? message : `${message} [TR491]`;
  showNote(faultNote, line ? `Line ${line}: ${text}` : text);
  if (line) editor.showError(message, line, column);
  say(!tools.isEmpty ? "The tools of the last run are still offered." : "Nothing is offered.");
}

/** @param {import("./program_port.js").Definition[]} offered */
async function onTools(offered) {
  stopButton.hidden = offered.length === 0;
  if (!offered.length) return void tools.show([]);
  say("The relay gets the tools.");
  const missing = await tools.show(offered);
  if (missing === null) return;
  const names = (missing.length ? missing : offered.map(({ name }) => name)).join(", ");
  if (!missing.length) say(`Clients of ${SERVER} can list and call: ${names}.`);
  else if (!isConnected) say("Clients get the tools as soon as this page is connected.");
  else say(`Clients do not get ${names} by this name: the server ${SERVER} has another tool with it. Rename yours, and press Run.`);
}

/** @param {string} reason */
function onEnd(reason) {
  say(reason);
}

/** @param {State} state */
function onState({ state, message }) {
  isConnected = state === "connected";
  const badge = byId("state", HTMLElement);
  badge.dataset.state = state;
  badge.className = `badge ${{ connected: "is-ok", connecting: "", waiting: "is-warn", stopped: "is-bad" }[state]}`;
  badge.textContent = { connected: "Connected", connecting: "Connecting", waiting: "Waiting", stopped: "Not connected" }[state];
  showNote(byId("state-text", HTMLElement), state === "connected" || state === "connecting" ? "" : (message ?? ""));
}

async function loadFirst() {
  try {
    const shared = await fromFragment(location.hash);
    if (shared) return load(shared.language, shared.source, "This program comes from a link. Read it before you press Run.");
  } catch (error) {
    load("python", "", /** @type {Error} */ (error).message);
    return;
  }
  await loadStartingPoint(STARTING_POINTS[0]?.id ?? "");
}

/** @param {string} id */
async function loadStartingPoint(id) {
  const point = STARTING_POINTS.find((each) => each.id === id);
  if (!point) return;
  try {
    load(point.language, await loadProgram(point.file));
    choice.show(id);
    byId("editor", HTMLElement).dataset.loaded = id;
  } catch (error) {
    say(String(error));
  }
}

async function connectToRelay() {
  // Imported here, so that the page can show an error of the import.
  const { connect } = await import("/-/client.js");
  const connection = connect({ server: SERVER, panel: false });
  host = new ProgramHost(connection, byId("frames", HTMLElement), { onTools, onEnd });
  connection.addEventListener("state", (event) => onState(event.detail));
  onState(connection.state);
}

byId("run-keys", HTMLElement).textContent = isMac ? "⌘-Enter" : "Ctrl-Enter";
/** @returns {import("./share.js").Program} */
const read = () => ({ language: /** @type {Language} */ (languageChoice.value), source: editor.text });
const choice = new ProgramChoice({
  read,
  load: ({ language, source }) => load(language, source),
  loadStartingPoint: (id) => void loadStartingPoint(id),
  say,
});
addActions(read, say);
languageChoice.addEventListener("change", () => load(/** @type {Language} */ (languageChoice.value), editor.text));
runButton.addEventListener("click", () => void run());
stopButton.addEventListener("click", () => host?.stop());
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#pair=")) location.reload();
  else void loadFirst();
});

void loadFirst();
connectToRelay().catch((error) => {
  onState(/** @type {any} */ ({ state: "stopped", message: `The relay's client could not be loaded: ${error}` }));
});
