/**
 * A MessagePort's work, done by a BroadcastChannel: for pages and a worker that nothing can hand a port to.
 *
 * A MessagePort can't be sent over a BroadcastChannel, so page and worker agree there on the name of a channel that only
 * the two of them use. The page knocks, with that name; the worker opens the channel and speaks first. Everybody of one
 * origin may knock, as everybody of one origin may join a shared worker.
 */

/** What `worker.js` takes from a page, and a page from its worker. @typedef {Pick<MessagePort, "postMessage" | "onmessage" | "close">} Port */

/** One end of such a channel. @implements {Port} */
export class Pipe {
  #channel;
  /** What came before anybody listened, as a MessagePort keeps it. @type {MessageEvent[]} */
  #early = [];
  /** @type {Port["onmessage"]} */
  #listener = null;
  #isOpen = true;

  /** @param {string} name */
  constructor(name) {
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = (event) => {
      if (this.#listener) this.#hear(event);
      else this.#early.push(event);
    };
  }

  get onmessage() {
    return this.#listener;
  }

  set onmessage(listener) {
    this.#listener = listener;
    for (const event of listener ? this.#early.splice(0) : []) this.#hear(event);
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
  #hear(event) {
    this.#listener?.call(/** @type {any} */ (this), event);
  }
}

/**
 * The worker's side: open a pipe for everybody who knocks.
 * @param {string} key
 * @param {(pipe: Pipe) => void} accept
 */
export function answerKnocks(key, accept) {
  const hall = new BroadcastChannel(hallOf(key));
  /** @type {Set<string>} */
  const known = new Set();
  hall.onmessage = ({ data }) => {
    if (data.t !== "knock" || known.has(data.name)) return;
    known.add(data.name);
    accept(new Pipe(data.name));
  };
  // Whoever knocked before was not heard.
  hall.postMessage({ t: "open" });
}

/**
 * A page's side: a pipe to the worker that is there, or to the next one that comes. `stop` knocking when the worker has
 * spoken: the pipe is that worker's own.
 * @param {string} key
 * @returns {{ pipe: Pipe, stop: () => void }}
 */
export function knock(key) {
  const name = `tabrelay-pipe:${crypto.randomUUID()}`;
  const pipe = new Pipe(name);
  const hall = new BroadcastChannel(hallOf(key));
  hall.onmessage = ({ data }) => {
    if (data.t === "open") hall.postMessage({ t: "knock", name });
  };
  hall.postMessage({ t: "knock", name });
  return { pipe, stop: () => hall.close() };
}

/** @param {string} key */
function hallOf(key) {
  return `tabrelay-hall:${key}`;
}
