/**
 * The express: carries out what Python has granted, and tells Python afterwards. See express.py.
 *
 * A grant is for calls that differ from one that Python has seen in nothing but their arguments. Frames have numbers, and
 * this side writes under Python's: `#next` is the one that the relay's next frame must have, `#turn` the one that an answer
 * of ours has. Both are known as long as nobody but this file has moved them; else Python has its turn, and tells them anew.
 *
 * @import { Port } from "./pipe.js"
 * @import { Call } from "./plain.js"
 */

import { isPlainResult, readCall } from "./plain.js";

/** Letters of an answer; longer ones may have to be sliced, which the link does. */
const LONGEST = 48 * 1024;
/** Bytes that have not left yet, from which on the link waits before it writes more. */
const HIGH_WATER = 1024 * 1024;

/**
 * What Python counts. Texts come as `shim.js` writes them.
 * @typedef {object} Books
 * @property {(grant: number, seq: number, upto: number, channel: string, id: number | string, call: string, headerSize: number, request: string | number) => void} sent
 * @property {(call: string, json: string | number) => number} answered
 * @property {(grant: number, seq: number, upto: number, channel: string, id: number | string, headerSize: number, request: string | number) => string | undefined} run
 * @property {(isWritten: boolean) => number} ran
 * @property {() => number} turn
 */

/**
 * `port`: of the tab that has the tool, or nothing if that is the worker's own. `channel`: of the call that it was given for.
 * `words`: what the tab is told with each call. `meta`: the `_meta` of answers.
 * @typedef {{ port: Port | undefined, number: number, channel: string, words: string, meta: string }} Grant
 */

export class Express {
  #written;
  /** By whose and which tool's calls they are for. @type {Map<string, Grant>} */
  #grants = new Map();
  /** What Python granted while it received the frame at hand. @type {Grant | undefined} */
  #granted;
  /** Calls under way, by the names that tabs know them by. @type {Map<string, { grant: Grant, channel: string, id: string }>} */
  #calls = new Map();
  #count = 0;
  #next = 0;
  #turn = 0;
  /** @type {WebSocket | undefined} */
  #socket;
  /** @type {Books} */
  #books = { sent: () => {}, answered: () => 0, run: () => undefined, ran: () => 0, turn: () => 0 };

  /** @param {(text: string) => string | number} written hands a text to Python */
  constructor(written) {
    this.#written = written;
  }

  /**
   * A socket that is about to open.
   * @param {WebSocket} socket
   * @param {Books} books
   */
  use(socket, books) {
    this.revoke();
    this.#next = 0;
    this.#socket = socket;
    this.#books = books;
  }

  /** @param {Grant} grant */
  allow(grant) {
    this.#granted = grant;
  }

  revoke() {
    this.#grants.clear();
    this.#calls.clear();
    this.#granted = undefined;
    this.#turn = 0;
  }

  /** Python writes by itself. */
  yield() {
    this.#turn = 0;
  }

  /**
   * Carry out a call, if there is a grant for it. Returns false if Python has to receive the frame.
   * @param {string} frame
   */
  take(frame) {
    if (this.#grants.size === 0 || this.#socket?.readyState !== WebSocket.OPEN) return false;
    const call = readCall(frame);
    const grant = call && this.#grants.get(call.like);
    if (!call || !grant || call.seq !== this.#next) return false;
    return grant.port ? this.#send(grant, call) : this.#run(grant, call);
  }

  /**
   * Let Python receive a frame, and remember what it grants to those that are like it.
   * @param {string} frame
   * @param {() => number} receive gives the number of the last frame that Python has, or -1 if that is not known
   */
  pass(frame, receive) {
    this.#granted = undefined;
    this.#turn = 0;
    this.#next = receive() + 1;
    const granted = /** @type {Grant | undefined} */ (this.#granted);
    const call = granted && readCall(frame);
    if (call && call.channel === granted.channel) this.#grants.set(call.like, granted);
  }

  /**
   * Write a tab's answer, if its call went this way. Returns false if Python has to receive it.
   * @param {Port} port
   * @param {string} name
   * @param {string} json
   */
  answer(port, name, json) {
    const call = this.#calls.get(name);
    if (!call || call.grant.port !== port) return false;
    this.#calls.delete(name);
    const { grant, channel, id } = call;
    if (typeof json !== "string" || json.length + grant.meta.length > LONGEST) return false;
    if (!isPlainResult(json) || !this.#isMyTurn()) return false;
    this.#write(channel, id, json, grant.meta);
    this.#turn = this.#books.answered(name, this.#written(json));
    return true;
  }

  /** May an answer be written now? */
  #isMyTurn() {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN || socket.bufferedAmount >= HIGH_WATER) return false;
    this.#turn ||= this.#books.turn();
    return this.#turn > 0;
  }

  /**
   * @param {string} channel
   * @param {string} id
   * @param {string} json
   * @param {string} meta
   */
  #write(channel, id, json, meta) {
    const header = `{"t":"msg","s":${this.#turn},"a":${this.#next - 1},"c":"${channel}","k":"res","i":${id}}`;
    const result = `{"resultType":"complete",${json.slice(1, -1)},"_meta":${meta}}`;
    this.#turn = 0;
    this.#socket?.send(`${header}\n{"jsonrpc":"2.0","id":${id},"result":${result}}`);
  }

  /**
   * @param {Grant} grant
   * @param {Call} call
   */
  #send(grant, call) {
    const name = `x${++this.#count}`;
    try {
      grant.port?.postMessage(`{"t":"call","call":"${name}",${grant.words},"request":${call.request}}`);
    } catch {
      return false; // Python meets it too, and says so
    }
    const { seq, upto, channel, id, headerSize, request } = call;
    this.#calls.set(name, { grant, channel, id: said(id) });
    this.#next++;
    this.#books.sent(grant.number, seq, upto, channel, id, name, headerSize, this.#written(request));
    return true;
  }

  /**
   * @param {Grant} grant
   * @param {Call} call
   */
  #run(grant, call) {
    const { seq, upto, channel, id, headerSize, request } = call;
    if (!this.#isMyTurn()) return false;
    const json = this.#books.run(grant.number, seq, upto, channel, id, headerSize, this.#written(request));
    if (json === undefined) return false;
    this.#next++;
    // The tool may have said something itself, and whatever it did may have changed what there is.
    const isWritten = json !== "" && this.#turn > 0;
    if (isWritten) this.#write(channel, said(id), json, grant.meta);
    if (json !== "") this.#turn = this.#books.ran(isWritten);
    return true;
  }
}

/**
 * An id as JSON: readCall takes none that would have to be escaped.
 * @param {number | string} id
 */
function said(id) {
  return typeof id === "number" ? `${id}` : `"${id}"`;
}
