/**
 * What browser.py can't do well from Python: listeners that hand over plain strings.
 *
 * It moves ports and values and decides nothing. It is a real file because the worker's content security policy forbids
 * `eval`; and it splits and serialises here because a string crosses into Python cheaper than an object does.
 *
 * @import { FromPage } from "./ports.js"
 */

/**
 * Hand every message of a port to Python: as JSON text, and the large text that some carry beside it, untouched.
 * @param {MessagePort} port
 * @param {(head: string, body: string | undefined) => void} receive
 */
export function listen(port, receive) {
  port.onmessage = (/** @type {MessageEvent<FromPage & {json?: string}>} */ event) => {
    const { json, ...head } = event.data;
    receive(JSON.stringify(head), json);
  };
}

/**
 * @param {MessagePort} port
 * @param {string} json
 */
export function post(port, json) {
  port.postMessage(JSON.parse(json));
}

/**
 * Open a WebSocket. A frame is a header and, after the first newline, an opaque payload.
 * @param {string} url
 * @param {string[]} protocols
 * @param {() => void} opened
 * @param {(header: string, payload: string | undefined) => void} received
 * @param {(code: number, reason: string) => void} closed
 */
export function openSocket(url, protocols, opened, received, closed) {
  const socket = new WebSocket(url, protocols);
  socket.onopen = () => opened();
  socket.onclose = (event) => closed(event.code, event.reason);
  socket.onmessage = ({ data }) => {
    const frame = typeof data === "string" ? data : ""; // the link has no binary frames: an empty header is a violation
    const cut = frame.indexOf("\n");
    if (cut < 0) received(frame, undefined);
    else received(frame.slice(0, cut), frame.slice(cut + 1));
  };
  return socket;
}

/**
 * Tell when a Web Lock becomes free: whoever held it is gone. Returns a function that stops the watch.
 * @param {string} name
 * @param {() => void} tell
 */
export function whenFree(name, tell) {
  const watch = new AbortController();
  navigator.locks.request(name, { signal: watch.signal }, () => tell()).catch((error) => {
    if (!watch.signal.aborted) console.error("tabrelay: the watch on a tab failed", error);
  });
  return () => watch.abort();
}

/** @param {() => void} tell */
export function whenOnline(tell) {
  self.addEventListener("online", () => tell());
}
