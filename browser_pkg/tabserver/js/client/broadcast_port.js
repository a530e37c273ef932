/**
 * MessagePort over a BroadcastChannel, for a dedicated worker that serves all tabs of an origin.
 *
 * A MessagePort can't be sent over a BroadcastChannel. So the page sends the name of a new channel over a shared lobby channel,
 * and the worker opens that channel and sends the first message. Any page of the origin may do so, as any page of the origin may
 * join a shared worker. It does not look into messages.
 */

/** The part of a MessagePort that is used. @typedef {Pick<MessagePort, "postMessage" | "onmessage" | "close">} Port */

// Messages of the lobby channel. Clients of earlier versions use the same values.
const PORT_REQUEST = "knock"; // style: ok (wire value)
const WORKER_READY = "open";

/** One end of such a channel. @implements {Port} */
class BroadcastPort {
  #channel;
  /** Messages that arrived before there was a listener; a MessagePort queues them too. @type {MessageEvent[]} */
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
 * The worker's side: open a port for every page that requests one.
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
  // Requests of pages that came before this worker were lost: those pages repeat them now.
  lobby.postMessage({ t: WORKER_READY });
}

/**
 * A page's side: a port to the running worker, or to the next one that starts. Call `stop` at the worker's first message: the
 * port then belongs to that worker, and a later worker must not open it.
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
