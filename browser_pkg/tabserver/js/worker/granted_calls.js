/**
 * The express: carries out what Python has granted, and tells Python afterwards. See express.py.
 *
 * A grant is for calls that differ from one that Python has seen in nothing but their arguments. Frames have numbers, and
 * this side writes under Python's: `#expectedSeq` is the one that the relay's next frame must have, `#nextSeq` the one that an answer
 * of ours has. Both are known as long as nobody but this file has moved them; else Python has its turn, and tells them anew.
 *
 * What was carried out is told to Python a little later, for many calls at once, but always before Python hears or says
 * anything else: until then nobody can see that its books are behind.
 *
 * @import { Port } from "../client/broadcast_port.js"
 * @import { Opening, Pattern } from "./plain_calls.js"
 */

import { argumentsOf, isPlainResult, patternOf, readOpening } from "./plain_calls.js";

/** Letters of an answer; longer ones may have to be sliced, which the link does. */
const MAX_ANSWER_CHARACTERS = 48 * 1024;
/** Bytes that have not left yet, from which on the link waits before it writes more. */
const HIGH_WATER = 1024 * 1024;
/** How long Python may be behind, in milliseconds, calls and letters. It counts on the last two: see express.py. */
const SYNC_DELAY_MS = 20;
const MAX_UNRECORDED = 64;
const MAX_UNRECORDED_CHARACTERS = 256 * 1024;
/** How long a message shows that a tab reads, and the most calls that may lie unread in it: see tabs/tab.py. */
const FRESH_MS = 100;
const WINDOW = 64;
const MAX_UNREAD = 4096;

/**
 * What Python counts. Texts come as `worker/python_bridge.js` writes them.
 * @typedef {object} PythonCalls
 * @property {(entries: string | number) => number} record gives the number that the next answer may have (0: ask)
 * @property {(grant: number, given: string | number) => string | undefined} run
 * @property {(upto: number, channel: string, id: string, size: number, request: string, json: string) => void} finish
 * @property {() => number} nextSeq
 */

/**
 * `port`: of the tab that has the tool, or nothing if that is the worker's own. `channel`: of the call that it was given for.
 * `members`: what the tab is told with each call. `meta`: the `_meta` of answers. `hasRivals`: another tab could take the call.
 * @typedef {{
 *   port: Port | undefined, number: number, channel: string, members: string, meta: string, hasRivals: boolean
 * }} Grant
 */

/**
 * What shows that a tab reads, as in tabs/tab.py: calls and pings that it may not have read yet, in order; how many of them are
 * pings; how many may be calls while another tab could take the next one; and when it last said something.
 * @typedef {{ unread: Map<string, boolean>, pings: number, window: number, received_ms: number }} Signs
 */

export class GrantedCalls {
  #toPython;
  /** By whose calls they are for. @type {Map<string, { pattern: Pattern, grant: Grant }[]>} */
  #grants = new Map();
  /** What Python granted while it received the frame at hand. @type {Grant | undefined} */
  #granted;
  /** Calls under way, by the names that tabs know them by. @type {Map<string, { grant: Grant, call: Opening }>} */
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

  // What Python has not been told of yet: how many requests came, and their size; the last of the relay's and of our own
  // acknowledgements; calls that tabs have, by their names; answers that were written, in order; and the letters of it all.
  #requestCount = 0;
  #requestSize = 0;
  #relayAck = 0;
  #acknowledged = 0;
  /** @type {Map<string, string>} */
  #sent = new Map();
  /** @type {string[]} */
  #answers = [];
  #characters = 0;
  /** Of the last answer, if another tab could have taken its call. @type {Grant | undefined} */
  #lastAnswered;
  #hasTimer = false;

  /** @param {(text: string) => string | number} toPython hands a text to Python */
  constructor(toPython) {
    this.#toPython = toPython;
  }

  /**
   * A socket that is about to open.
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

  /** Python has been told of all that was carried out. */
  revoke() {
    this.#grants.clear();
    this.#calls.clear();
    this.#granted = undefined;
    this.#nextSeq = 0;
  }

  /**
   * What Python has not been told of yet, as lines; "" if there is nothing. Who asks for it is going to write, and has the
   * turn from now on.
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

  /** Tell Python. */
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
    const call = readOpening(frame);
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
   * Let Python receive a frame, and remember what it grants to those that are like it.
   * @param {string} frame
   * @param {() => number} receive gives the number of the last frame that Python has, or -1 if that is not known
   */
  passToPython(frame, receive) {
    // defence: calls that JavaScript carries out: told before a frame
    this.sync();
    this.#granted = undefined;
    this.#nextSeq = 0;
    this.#expectedSeq = receive() + 1;
    const grant = /** @type {Grant | undefined} */ (this.#granted);
    const call = grant && readOpening(frame);
    // defence: calls that JavaScript carries out: their channel
    const pattern = call && call.channel === grant.channel ? patternOf(call) : undefined;
    if (!call || !pattern) return;
    const grants = this.#grants.get(call.caller);
    if (grants) grants.push({ pattern, grant });
    else this.#grants.set(call.caller, [{ pattern, grant }]);
  }

  /**
   * Write a tab's answer, if its call went this way. Returns false if Python has to receive it.
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
    if (typeof json !== "string" || json.length + grant.meta.length > MAX_ANSWER_CHARACTERS) return false;
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
   * A page said something, of that call perhaps. It reads in order: an answer shows that it has read all that came before.
   * After a pause nothing is known of how much it can take.
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
   * May a tab get a call that another tab could take? Where that is not known, Python asks the tab. While the tab has a ping
   * to answer, calls wait for it there, and come first.
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
   * @param {Opening} call
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
   * @param {Opening} call
   */
  #send(grant, port, call) {
    const name = `x${++this.#count}`;
    try {
      port.postMessage(`{"t":"call","call":"${name}",${grant.members},"request":${call.request}}`);
    } catch {
      return false; // Python meets it too, and says so
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
   * @param {Opening} call
   * @param {string} given
   */
  #run(grant, call, given) {
    // defence: calls that JavaScript carries out: what was acknowledged
    if (!this.#canWrite() || call.upto >= this.#nextSeq) return false;
    const json = this.#python.run(grant.number, this.#toPython(given));
    if (json === undefined) return false;
    // What the tool returned may not be text; it may have said something itself, or changed what there is.
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

  /** @param {Opening} call */
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

  /** The timer stays as it is: one that finds nothing to do does no harm. */
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
 * A call that was answered before Python was told of it.
 * @param {Grant} grant
 * @param {Opening} call
 * @param {string} json
 */
function servedEntry({ number }, { channel, id }, json) {
  return `served\n${number}\n${channel}\n${id}\n${json}`;
}

/**
 * Count a message that was sent to a tab. Of too many that it never answers, the oldest are forgotten.
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
 * A tab has read all up to that. With so many calls before it, it may get one more.
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
