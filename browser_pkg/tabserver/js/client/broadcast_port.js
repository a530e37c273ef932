/**
 * A MessagePort's work, done by a BroadcastChannel: for pages and a worker that nothing can hand a port to.
 *
 * A MessagePort can't be sent over a BroadcastChannel, so page and worker agree there on the name of a channel that only
 * the two of them use. The page knocks, with that name; the worker opens the channel and speaks first. Everybody of one
 * origin may knock, as everybody of one origin may join a shared worker.
 */

/** What `worker.js` takes from a page, and a page from its worker. @typedef {Pick<MessagePort, "postMessage" | "onmessage" | "close">} Port */

// Messages of the lobby channel. Clients of earlier versions send the same ones.
const PORT_REQUEST = "knock"; // style: ok (wire value)
const WORKER_READY = "open";

/** One end of such a channel. @implements {Port} */
export class BroadcastPort {
  #channel;
  /** What came before anybody listened, as a MessagePort keeps it. @type {MessageEvent[]} */
  #undelivered = [];
  /** @type {Port["onmessage"]} */
  #listener = null;
  #isOpen = true;

  /** @param {string} name */
  constructor(name) {
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = (event) => {
      if (this.#listener) this.#deliver(event);
      else this.#undelivered.push(event);
    };
  }

  get onmessage() {
    return this.#listener;
  }

  set onmessage(listener) {
    this.#listener = listener;
    for (const event of listener ? this.#undelivered.splice(0) : []) this.#deliver(event);
  }

  /** @param {any} message */
  postMessage(message) {
    if (this.#isOpen) this.#channel.postMessage(message);
  }

  close() {
    this.#isOpen = false;
    this.#channel.close();
  }

  /** @param {MessageEvent} event */
  #deliver(event) {
    this.#listener?.call(/** @type {any} */ (this), event);
  }
}

/**
 * The worker's side: open a pipe for everybody who knocks.
 * @param {string} key
 * @param {(port: BroadcastPort) => void} accept
 */
export function acceptPorts(key, accept) {
  const lobby = new BroadcastChannel(lobbyName(key));
  /** @type {Set<string>} */
  const seen = new Set();
  lobby.onmessage = ({ data }) => {
    if (data.t !== PORT_REQUEST || seen.has(data.name)) return;
    seen.add(data.name);
    accept(new BroadcastPort(data.name));
  };
  // Whoever knocked before was not heard.
  lobby.postMessage({ t: WORKER_READY });
}

/**
 * A page's side: a pipe to the worker that is there, or to the next one that comes. `stop` knocking when the worker has
 * spoken: the pipe is that worker's own.
 * @param {string} key
 * @returns {{ port: BroadcastPort, stop: () => void }}
 */
export function openPort(key) {
  const name = `tabrelay-pipe:${crypto.randomUUID()}`;
  const port = new BroadcastPort(name);
  const lobby = new BroadcastChannel(lobbyName(key));
  lobby.onmessage = ({ data }) => {
    if (data.t === WORKER_READY) lobby.postMessage({ t: PORT_REQUEST, name });
  };
  lobby.postMessage({ t: PORT_REQUEST, name });
  return { port, stop: () => lobby.close() };
}

/** @param {string} key */
function lobbyName(key) {
  return `tabrelay-hall:${key}`;
}
