/**
 * Bridge between JavaScript and Python in the worker: ports, sockets, Web Locks and proofs, with strings as values.
 *
 * Strings cross into Python at a lower cost than objects, so messages are serialised here. Before Python receives any event, it
 * gets the records of the calls that JavaScript has carried out: see granted_calls.js. It is a separate file because the
 * worker's content security policy forbids `eval`. It decides nothing about calls.
 *
 * @import { PythonCalls } from "./granted_calls.js"
 * @import { Port } from "../client/broadcast_port.js"
 * @import { FromPage, Memory } from "../ports.js"
 */

import { GrantedCalls } from "./granted_calls.js";
import { loadText, loadWheel } from "./package_download.js";
import { isPlainResult } from "./plain_calls.js";
import { isAccessToken, keyOf, keysFrom, prove as proveWith, checkHealth, Unproven } from "../proof.js";

export { dropTask, keepTask, readTasks } from "./task_store.js";

/** Python's memory for texts: see browser/shared_buffer.py. @type {Memory} */
let buffer;
/** @type {ReturnType<Memory["getBuffer"]>} */
let view;
const encoder = new TextEncoder();

/** @param {Memory} memory */
export function useSharedBuffer(memory) {
  buffer = memory;
  view = buffer.getBuffer("u8");
}

/**
 * Write a text into the shared buffer if it fits. Returns its number of bytes there, or the text itself. A text with half of a
 * surrogate pair is returned, because UTF-8 can't represent it.
 * @param {string} text
 */
function passText(text) {
  if (view.data.length === 0) { // Python's memory has grown and has moved
    view.release();
    view = buffer.getBuffer("u8");
  }
  if (text.length > view.data.length) return text;
  const { read, written } = encoder.encodeInto(text, view.data);
  return read === text.length ? written : text;
}

const grantedCalls = new GrantedCalls(passText);

const PROOF_TIMEOUT_MS = 10_000;

/** The beginning of a call message to a page, up to the call's id, and a ping message, as Python writes them. */
const CALL = '{"t":"call","call":"';
const PING = '{"t":"ping"}';

/**
 * Grant calls that are similar to the one that Python receives now: see granted_calls.js.
 * @param {Port | undefined} port
 * @param {number} number
 * @param {string} channel
 * @param {string} members
 * @param {string} meta
 * @param {boolean} hasRivals
 */
export function allow(port, number, channel, members, meta, hasRivals) {
  grantedCalls.allow({ port, number, channel, members, meta, hasRivals });
}

export function revoke() {
  grantedCalls.revoke();
}

/** The records that Python does not have yet. */
export function unrecorded() {
  return grantedCalls.unrecorded();
}

/**
 * Pass every message of a port to Python: as JSON text; a plain result as its call id, a newline, and the result's text, which
 * Python passes on without parsing. Nearly all results are plain.
 * @param {MessagePort} port
 * @param {(message: string) => void} receive
 * @param {(callAndJson: string | number) => void} receivePlain
 */
export function listen(port, receive, receivePlain) {
  port.onmessage = (/** @type {MessageEvent<FromPage>} */ { data }) => {
    grantedCalls.messageReceived(port, data.t, "call" in data ? data.call : undefined);
    if (data.t === "result" && grantedCalls.answer(port, data.call, data.json)) return undefined;
    // defence: calls of JavaScript: reported before a page's message
    grantedCalls.sync();
    if (data.t === "attach" || data.t === "token") return receive(JSON.stringify(withoutKey(data)));
    if (data.t !== "result" || !isPlainResult(data.json) || String(data.call).includes("\n")) return receive(JSON.stringify(data));
    return receivePlain(passText(`${data.call}\n${data.json}`));
  };
}

/**
 * A function that posts to a port: as text if the page reads text, which saves a parse and copies cheaper than an object.
 * Python keeps the function, because looking up a method of a JavaScript object costs more than calling it.
 * @param {MessagePort} port
 * @param {boolean} asText
 * @returns {(json: string) => void}
 */
export function poster(port, asText) {
  const post = asText ? (/** @type {string} */ json) => port.postMessage(json)
    : (/** @type {string} */ json) => port.postMessage(JSON.parse(json));
  return (json) => {
    if (json.startsWith(CALL)) grantedCalls.callSent(port, json.slice(CALL.length, json.indexOf('"', CALL.length)));
    else if (json === PING) grantedCalls.pingSent(port);
    post(json);
  };
}

/** The key that a page sent last, with its id. @type {import("../proof.js").Key | undefined} */
let pageKey;

/**
 * Keys stay in JavaScript; Python gets their ids.
 * @param {Extract<FromPage, { t: "attach" | "token" }>} message
 */
function withoutKey({ key, ...rest }) {
  if (key && rest.token) pageKey = { id: rest.token, key };
  return rest;
}

/**
 * Have the relay prove itself, and make the worker's proof. Returns JSON text: `bearer` and `socket`, or `why` and `message`.
 * @param {string} relay
 * @param {string} token the id of a page's key, or a token
 * @param {AbortSignal} signal
 */
export async function prove(relay, token, signal) {
  try {
    if (isAccessToken(token)) {
      if (!relay.startsWith("https:")) throw new Unproven("forbidden", "An access token is sent over https only.");
      await checkHealth(new URL(relay).origin, signal);
      return JSON.stringify({ bearer: token, socket: "" });
    }
    // defence: another program on the port: the worker's key is derived
    const key = pageKey?.id === token ? pageKey : (await keysFrom(await keyOf(token))).worker;
    return JSON.stringify(await proveWith(relay, key, signal));
  } catch (error) {
    if (error instanceof Unproven) return JSON.stringify({ why: error.why, message: error.message });
    return JSON.stringify({ why: "lost", message: `The relay could not be asked to prove itself: ${error}` });
  }
}

/**
 * Open a WebSocket. With a `signature`, it counts as open when the relay has sent that signature.
 * @param {string} url
 * @param {string[]} protocols
 * @param {string} signature
 * @param {() => void} opened
 * @param {(frame: string | number) => number} received
 * @param {(code: number, reason: string) => void} closed
 * @param {PythonCalls["record"]} record
 * @param {PythonCalls["run"]} run
 * @param {PythonCalls["finish"]} finish
 * @param {PythonCalls["nextSeq"]} nextSeq
 */
export function openSocket(url, protocols, signature, opened, received, closed, record, run, finish, nextSeq) {
  const socket = new WebSocket(url, protocols);
  grantedCalls.useSocket(socket, { record, run, finish, nextSeq });
  let expected = signature;
  socket.onopen = () => {
    if (!expected) opened();
  };
  socket.onclose = (event) => {
    // defence: calls of JavaScript: reported before the end of a socket
    grantedCalls.sync();
    closed(event.code, event.reason);
  };
  socket.onmessage = ({ data }) => {
    if (expected) {
      // defence: another program on the port: a worker's socket is signed
      if (data !== expected) return socket.close();
      expected = "";
      return opened();
    }
    const frame = typeof data === "string" ? data : ""; // the link has no binary frames: an empty header is a violation
    if (!grantedCalls.carryOut(frame)) grantedCalls.passToPython(frame, () => received(passText(frame)));
  };
  return socket;
}

/**
 * A function that writes to a socket, and returns how many bytes its buffer holds.
 * @param {WebSocket} socket
 * @returns {(frame: string) => number}
 */
export function sender(socket) {
  return (frame) => {
    socket.send(frame);
    return socket.bufferedAmount;
  };
}

/** A page's `detach` message may arrive after its lock is free: they take different paths through the browser. */
const DETACH_MS = 50;

/**
 * Call `notify` when a Web Lock becomes free, because its holder is gone. Returns a function that stops the watch.
 * @param {string} name
 * @param {() => void} notify
 */
export function whenFree(name, notify) {
  const watch = new AbortController();
  const notifyUnlessStopped = () => {
    if (watch.signal.aborted) return;
    grantedCalls.sync();
    notify();
  };
  navigator.locks.request(name, { signal: watch.signal }, () => void setTimeout(notifyUnlessStopped, DETACH_MS)).catch((error) => {
    if (!watch.signal.aborted) console.error("tabrelay: the watch on a tab failed [TR480]", error);
  });
  return () => watch.abort();
}

/** @param {() => void} notify */
export function whenOnline(notify) {
  self.addEventListener("online", () => {
    grantedCalls.sync();
    notify();
  });
}

/** @type {import("../ports.js").Pyodide} */
let pyodide;

/** @param {import("../ports.js").Pyodide} python */
export function usePyodide(python) {
  pyodide = python;
}

/**
 * @param {string} relay
 * @param {string} token
 */
async function bearerFor(relay, token) {
  const { bearer, message } = JSON.parse(await prove(relay, token, AbortSignal.timeout(PROOF_TIMEOUT_MS)));
  if (!bearer) throw new Error(message ?? "The relay has not proved itself.");
  return bearer;
}

/**
 * The relay's index of Python packages, as JSON text.
 * @param {string} relay
 * @param {string} token
 */
export async function packageIndex(relay, token) {
  return loadText(`${relay}/-/packages/index.json`, await bearerFor(relay, token));
}

/**
 * Download a wheel and install it.
 * @param {string} relay
 * @param {string} token
 * @param {string} file
 * @param {string} sha256
 * @param {(loaded: number, total: number) => void} report
 */
export async function installPackage(relay, token, file, sha256, report) {
  const url = `${relay}/-/packages/${encodeURIComponent(sha256)}/${encodeURIComponent(file)}`;
  const wheel = await loadWheel(url, await bearerFor(relay, token), sha256, report);
  // Not public, but what `pyodide.loadPackage` calls after its own download; the version of Pyodide is fixed.
  const folder = pyodide._api.package_loader.get_install_dir("site");
  await pyodide._api.install(wheel, file, folder, new Map([["INSTALLER", "tabrelay"]]));
}

/**
 * The package of Pyodide's distribution that has an import name, as JSON text; null: there is none.
 * @param {string} name
 */
export function inDistribution(name) {
  const packages = pyodide._api.lockfile_packages ?? {};
  const found = pyodide._api._import_name_to_package_name?.get(name) ?? name.toLowerCase().replaceAll("_", "-");
  const row = Object.hasOwn(packages, found) ? packages[found] : undefined;
  return JSON.stringify(row ? { name: found, compiled: !row.file_name.endsWith("-none-any.whl") } : null);
}
