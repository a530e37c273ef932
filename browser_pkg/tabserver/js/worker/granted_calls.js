/**
 * Tool calls that JavaScript carries out without Python, under grants that Python gave: see worker/js_calls.py.
 *
 * A grant covers calls that differ from one that Python has received only in their arguments. `#expectedSeq` is the sequence
 * number that the relay's next frame must have, `#nextSeq` the number of our next answer; 0 means that only Python knows it.
 * Invariant: Python gets the records of these calls later, many at once, but always before it receives or sends anything
 * else (`sync`). Any other frame or message goes to Python.
 *
 * @import { Port } from "../client/broadcast_port.js"
 * @import { Call, Pattern } from "./plain_calls.js"
 */

import { argumentsOf, isPlainResult, patternOf, readCall } from "./plain_calls.js";

/** Length of an answer; the link slices longer ones, so Python sends them. */
const MAX_RESULT_CHARACTERS = 48 * 1024;
/** With this many bytes in the socket's buffer, the link waits before it writes more. */
const HIGH_WATER = 1024 * 1024;
/** How far Python's records may lag: milliseconds, calls and characters. Python relies on the last two: see js_calls.py. */
const SYNC_DELAY_MS = 20;
const MAX_UNRECORDED = 64;
const MAX_UNRECORDED_CHARACTERS = 256 * 1024;
/** For how long a message shows that a tab reads its messages, and the most calls that it may have unread: see tabs/tab.py. */
const FRESH_MS = 100;
const WINDOW = 64;
const MAX_UNREAD = 4096;

/**
 * Python's side. Texts are passed as `worker/python_bridge.js` does it.
 * @typedef {object} PythonCalls
 * @property {(entries: string | number) => number} record returns the number of the next answer (0: ask `nextSeq`)
 * @property {(grant: number, given: string | number) => string | undefined} run
 * @property {(upto: number, channel: string, id: string, size: number, request: string, json: string) => void} finish
 * @property {() => number} nextSeq
 */

/**
 * `port`: of the tab that offers the tool; undefined for a tool of the worker. `channel`: of the call that the grant was given
 * for. `members`: JSON members of every call message to the tab. `meta`: the `_meta` of answers. `hasRivals`: another tab could
 * take the call.
 * @typedef {{
 *   port: Port | undefined, number: number, channel: string, members: string, meta: string, hasRivals: boolean
 * }} Grant
 */

/**
 * Whether a tab reads its messages, as in tabs/tab.py: calls and pings that it may not have read yet, in order; how many of them
 * are pings; how many calls may be unread while another tab could take the next one; and when its last message arrived.
 * @typedef {{ unread: Map<string, boolean>, pings: number, window: number, received_ms: number }} Signs
 */

export class GrantedCalls {
  #toPython;
  /** By the caller's part of the header. @type {Map<string, { pattern: Pattern, grant: Grant }[]>} */
  #grants = new Map();
  /** What Python granted while it received the current frame. @type {Grant | undefined} */
  #granted;
  /** Running calls, by the ids that tabs know them by. @type {Map<string, { grant: Grant, call: Call }>} */
  #calls = new Map();
  /** @type {WeakMap<Port, Signs>} */
  #signs = new WeakMap();
  #count = 0;
  #expectedSeq = 0;
  #nextSeq = 0;
  /** @type {WebSocket | undefined} */
  #socket;
  /** @type {PythonCalls} */
  #python = { record: () => 0, run: () => undefined, finish: () => {}, nextSeq: () => 0 };

  // What Python has no record of yet: the number of requests and their size; the last acknowledgement of the relay and of ours;
  // calls that tabs have, by their ids; answers that were written, in order; and the characters of all of these.
  #requestCount = 0;
  #requestSize = 0;
  #relayAck = 0;
  #acknowledged = 0;
  /** @type {Map<string, string>} */
  #sent = new Map();
  /** @type {string[]} */
  #answers = [];
  #characters = 0;
  /** The grant of the last answer, if another tab could have taken its call. @type {Grant | undefined} */
  #lastAnswered;
  #hasTimer = false;

  /** @param {(text: string) => string | number} toPython passes a text to Python */
  constructor(toPython) {
    this.#toPython = toPython;
  }

  /**
   * Use a socket that is about to open.
   * @param {WebSocket} socket
   * @param {PythonCalls} python
   */
  useSocket(socket, python) {
    this.revoke();
    this.#expectedSeq = 0;
    this.#socket = socket;
    this.#python = python;
  }

  /** @param {Grant} grant */
  allow(grant) {
    this.#granted = grant;
  }

  /** Drop all grants. Python has the records of all calls by now. */
  revoke() {
    this.#grants.clear();
    this.#calls.clear();
    this.#granted = undefined;
    this.#nextSeq = 0;
  }

  /**
   * What Python has no record of yet, as lines; "" if there is nothing. Python asks for it before it writes, so the next
   * sequence number is Python's from now on.
   */
  unrecorded() {
    this.#nextSeq = 0;
    if (this.#requestCount === 0 && this.#answers.length === 0) return "";
    const lines = [`${this.#requestCount} ${this.#requestSize} ${this.#relayAck} ${this.#acknowledged}`, ...this.#answers, ...this.#sent.values()];
    if (this.#lastAnswered?.port) {
      const { window, received_ms } = this.#signsOf(this.#lastAnswered.port);
      lines.push(`received\n${this.#lastAnswered.number}\n${performance.timeOrigin + received_ms}\n${window}`);
      this.#lastAnswered = undefined;
    }
    this.#requestCount = this.#requestSize = this.#relayAck = this.#acknowledged = this.#characters = 0;
    this.#answers = [];
    this.#sent.clear();
    return lines.join("\n");
  }

  /** Pass the records to Python. */
  sync() {
    const entries = this.unrecorded();
    if (entries !== "") this.#nextSeq = this.#python.record(this.#toPython(entries));
  }

  /**
   * Carry out a call, if there is a grant for it. Returns false if Python has to receive the frame.
   * @param {string} frame
   */
  carryOut(frame) {
    if (this.#grants.size === 0 || this.#socket?.readyState !== WebSocket.OPEN) return false;
    const call = readCall(frame);
    // defence: calls that JavaScript carries out: their number
    if (!call || call.seq !== this.#expectedSeq) return false;
    for (const { pattern, grant } of this.#grants.get(call.caller) ?? []) {
      const given = argumentsOf(pattern, call);
      if (given === undefined) continue;
      if (grant.port === undefined) return this.#run(grant, call, given);
      // defence: a busy tab: calls that JavaScript carries out wait too
      return (!grant.hasRivals || this.#responds(grant.port)) && this.#send(grant, grant.port, call);
    }
    return false;
  }

  /**
   * Let Python receive a frame, and store what it grants for similar frames.
   * @param {string} frame
   * @param {() => number} receive returns the number of the last frame that Python has, or -1 if that is not known
   */
  passToPython(frame, receive) {
    // defence: calls of JavaScript: reported before a frame
    this.sync();
    this.#granted = undefined;
    this.#nextSeq = 0;
    this.#expectedSeq = receive() + 1;
    const grant = /** @type {Grant | undefined} */ (this.#granted);
    const call = grant && readCall(frame);
    // defence: calls that JavaScript carries out: their channel
    const pattern = call && call.channel === grant.channel ? patternOf(call) : undefined;
    if (!call || !pattern) return;
    const grants = this.#grants.get(call.caller);
    if (grants) grants.push({ pattern, grant });
    else this.#grants.set(call.caller, [{ pattern, grant }]);
  }

  /**
   * Write a tab's answer to the relay, if this object sent the call. Returns false if Python has to receive it.
   * @param {Port} port
   * @param {string} name
   * @param {string} json
   */
  answer(port, name, json) {
    const known = this.#calls.get(name);
    // defence: calls that JavaScript carries out: whose answer it is
    if (!known || known.grant.port !== port) return false;
    this.#calls.delete(name);
    const { grant, call } = known;
    if (typeof json !== "string" || json.length + grant.meta.length > MAX_RESULT_CHARACTERS) return false;
    if (!isPlainResult(json) || !this.#canWrite()) return false;
    this.#write(grant, call, json);
    this.#lastAnswered = grant.hasRivals ? grant : undefined;
    this.#recordAnswer(this.#sent.delete(name) ? servedEntry(grant, call, json) : `answered\n${name}\n${json}`);
    return true;
  }

  /**
   * @param {Port} port
   * @param {string} name
   */
  callSent(port, name) {
    addUnread(this.#signsOf(port), name, false);
  }

  /** @param {Port} port */
  pingSent(port) {
    addUnread(this.#signsOf(port), `ping ${++this.#count}`, true);
  }

  /**
   * A page sent a message, perhaps about a call. Pages read in order: an answer shows that all earlier messages were read.
   * After a pause it is unknown how many calls the page can take.
   * @param {Port} port
   * @param {string} kind
   * @param {unknown} call
   */
  messageReceived(port, kind, call) {
    const signs = this.#signsOf(port);
    const now = performance.now();
    // defence: a busy tab: the window of JavaScript is one call after a pause
    if (now - signs.received_ms > FRESH_MS) signs.window = 1;
    signs.received_ms = now;
    if (kind === "pong") {
      for (const [name, isPing] of signs.unread) if (isPing) return markRead(signs, name);
    } else if (typeof call === "string" && signs.unread.has(call)) markRead(signs, call);
  }

  /** @param {Port} port */
  #signsOf(port) {
    let signs = this.#signs.get(port);
    if (!signs) this.#signs.set(port, (signs = { unread: new Map(), pings: 0, window: 1, received_ms: -Infinity }));
    return signs;
  }

  /**
   * May a tab get a call that another tab could take? Where that is unknown, Python pings the tab. While a ping is
   * unanswered, calls wait in Python for the tab, and go first.
   * @param {Port} port
   */
  #responds(port) {
    const { unread, pings, window, received_ms } = this.#signsOf(port);
    // defence: a busy tab: JavaScript sends no more than the window
    // defence: a busy tab: JavaScript sends nothing to a tab that was silent
    // defence: a busy tab: JavaScript sends nothing past calls that wait
    return pings === 0 && unread.size < window && performance.now() - received_ms <= FRESH_MS;
  }

  /** May an answer be written now? */
  #canWrite() {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN || socket.bufferedAmount >= HIGH_WATER) return false;
    this.#nextSeq ||= this.#python.nextSeq();
    return this.#nextSeq > 0;
  }

  /**
   * @param {Grant} grant
   * @param {Call} call
   * @param {string} json
   */
  #write({ meta }, { channel, id }, json) {
    this.#acknowledged = this.#expectedSeq - 1;
    this.#characters += json.length + meta.length;
    const header = `{"t":"msg","s":${this.#nextSeq++},"a":${this.#acknowledged},"c":"${channel}","k":"res","i":${id}}`;
    const result = `{"resultType":"complete",${json.slice(1, -1)},"_meta":${meta}}`;
    this.#socket?.send(`${header}\n{"jsonrpc":"2.0","id":${id},"result":${result}}`);
  }

  /**
   * @param {Grant} grant
   * @param {Port} port
   * @param {Call} call
   */
  #send(grant, port, call) {
    const name = `x${++this.#count}`;
    try {
      port.postMessage(`{"t":"call","call":"${name}",${grant.members},"request":${call.request}}`);
    } catch {
      return false; // Python gets the same error, and reports it
    }
    this.callSent(port, name);
    this.#calls.set(name, { grant, call });
    this.#sent.set(name, `sent\n${grant.number}\n${name}\n${performance.timeOrigin + performance.now()}\n${call.channel}\n${call.id}\n${call.request}`);
    this.#countRequest(call);
    this.#syncSoon();
    return true;
  }

  /**
   * @param {Grant} grant
   * @param {Call} call
   * @param {string} given
   */
  #run(grant, call, given) {
    // defence: calls that JavaScript carries out: what was acknowledged
    if (!this.#canWrite() || call.upto >= this.#nextSeq) return false;
    const json = this.#python.run(grant.number, this.#toPython(given));
    if (json === undefined) return false;
    // The tool's result may not be text, or the tool sent a message or changed the catalogue while it ran.
    if (json === "" || this.#nextSeq === 0) {
      this.#expectedSeq++;
      this.#python.finish(call.upto, call.channel, call.id, call.size, call.request, json);
      return true;
    }
    this.#countRequest(call);
    this.#write(grant, call, json);
    this.#recordAnswer(servedEntry(grant, call, json));
    return true;
  }

  /** @param {Call} call */
  #countRequest({ upto, size }) {
    this.#expectedSeq++;
    this.#requestCount++;
    this.#relayAck = upto;
    this.#requestSize += size;
    this.#characters += size;
  }

  /** @param {string} entry */
  #recordAnswer(entry) {
    this.#answers.push(entry);
    this.#syncSoon();
  }

  /** A running timer is kept: one that finds nothing to do is harmless. */
  #syncSoon() {
    // defence: calls that JavaScript carries out: how far behind
    if (this.#requestCount + this.#answers.length >= MAX_UNRECORDED || this.#characters >= MAX_UNRECORDED_CHARACTERS) this.sync();
    else if (!this.#hasTimer) {
      this.#hasTimer = true;
      setTimeout(() => {
        this.#hasTimer = false;
        this.sync();
      }, SYNC_DELAY_MS);
    }
  }
}

/**
 * The record of a call that was answered before Python had a record of it.
 * @param {Grant} grant
 * @param {Call} call
 * @param {string} json
 */
function servedEntry({ number }, { channel, id }, json) {
  return `served\n${number}\n${channel}\n${id}\n${json}`;
}

/**
 * Count a message that was sent to a tab. With more than MAX_UNREAD unanswered ones, the oldest are dropped.
 * @param {Signs} signs
 * @param {string} name
 * @param {boolean} isPing
 */
function addUnread(signs, name, isPing) {
  signs.unread.set(name, isPing);
  if (isPing) signs.pings++;
  for (const [oldest, wasPing] of signs.unread) {
    if (signs.unread.size <= MAX_UNREAD) return;
    signs.unread.delete(oldest);
    if (wasPing) signs.pings--;
  }
}

/**
 * A tab has read all messages up to this one. If the window was full, it grows by one call.
 * @param {Signs} signs
 * @param {string} upto
 */
function markRead(signs, upto) {
  // defence: a busy tab: the window of JavaScript has a limit
  if (signs.unread.size - signs.pings >= signs.window) signs.window = Math.min(signs.window + 1, WINDOW);
  for (const [name, isPing] of signs.unread) {
    signs.unread.delete(name);
    if (isPing) signs.pings--;
    if (name === upto) return;
  }
}
