/**
 * What browser.py can't do well from Python: listeners that hand over plain strings.
 *
 * It moves ports and values and decides nothing. Before Python hears of anything, it hears of the calls that were carried out
 * until then: see express.js. It is a real file because the worker's content security policy forbids
 * `eval`; and it splits and serialises here because a string crosses into Python cheaper than an object does.
 *
 * @import { PythonCalls } from "./granted_calls.js"
 * @import { Port } from "../client/broadcast_port.js"
 * @import { FromPage, Memory } from "../ports.js"
 */

import { GrantedCalls } from "./granted_calls.js";
import { isPlainResult } from "./plain_calls.js";
import { isAccessToken, keyOf, keysFrom, prove as proveWith, checkHealth, Unproven } from "../proof.js";

/** Python's memory for texts: see slate.py. @type {Memory} */
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
 * Write a text on the slate if it fits. Returns how many bytes it has there, or the text. Half of a surrogate pair would
 * not survive.
 * @param {string} text
 */
function passText(text) {
  if (view.data.length === 0) { // Python's memory has grown, and is elsewhere now
    view.release();
    view = buffer.getBuffer("u8");
  }
  if (text.length > view.data.length) return text;
  const { read, written } = encoder.encodeInto(text, view.data);
  return read === text.length ? written : text;
}

const grantedCalls = new GrantedCalls(passText);

/** How a call to a page begins, up to its name, and what a ping is, as Python writes them. */
const CALL = '{"t":"call","call":"';
const PING = '{"t":"ping"}';

/**
 * What calls like the one that Python receives now need not ask for: see express.js.
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

/** What Python has not been told of yet. */
export function unrecorded() {
  return grantedCalls.unrecorded();
}

/**
 * Hand every message of a port to Python: as JSON text; a result as its call, a newline, and its own text, if that is sound
 * and simple enough to be passed on unread, as nearly all are.
 * @param {MessagePort} port
 * @param {(message: string) => void} receive
 * @param {(callAndJson: string | number) => void} receivePlain
 */
export function listen(port, receive, receivePlain) {
  port.onmessage = (/** @type {MessageEvent<FromPage>} */ { data }) => {
    grantedCalls.messageReceived(port, data.t, "call" in data ? data.call : undefined);
    if (data.t === "result" && grantedCalls.answer(port, data.call, data.json)) return undefined;
    // defence: calls that JavaScript carries out: told before a page
    grantedCalls.sync();
    if (data.t === "attach" || data.t === "token") return receive(JSON.stringify(withoutKey(data)));
    if (data.t !== "result" || !isPlainResult(data.json) || String(data.call).includes("\n")) return receive(JSON.stringify(data));
    return receivePlain(passText(`${data.call}\n${data.json}`));
  };
}

/**
 * What posts to a port, as text where the page reads that: then nothing is parsed here, and a string is copied for less than
 * an object. Python keeps it: to find a method of a JavaScript object costs it more than to call one.
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

/** The key that a page gave last, by its id. @type {import("../proof.js").Key | undefined} */
let pageKey;

/**
 * Keys stay here; Python knows their ids.
 * @param {Extract<FromPage, { t: "attach" | "token" }>} message
 */
function withoutKey({ key, ...rest }) {
  if (key && rest.token) pageKey = { id: rest.token, key };
  return rest;
}

/**
 * Let the relay prove itself, and make the proof to show it. JSON text: `bearer` and `socket`, or `why` and `message`.
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
 * Open a WebSocket. It counts as open when the relay has said its `signature`, if there is to be one.
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
    // defence: calls that JavaScript carries out: told before the end
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
 * What writes to a socket, and says how much of all that was written has not left yet.
 * @param {WebSocket} socket
 * @returns {(frame: string) => number}
 */
export function sender(socket) {
  return (frame) => {
    socket.send(frame);
    return socket.bufferedAmount;
  };
}

/** The goodbye of a page may be under way when its lock is free already: they do not come the same way. */
const DETACH_MS = 50;

/**
 * Tell when a Web Lock becomes free: whoever held it is gone. Returns a function that stops the watch.
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
    if (!watch.signal.aborted) console.error("tabrelay: the watch on a tab failed", error);
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
