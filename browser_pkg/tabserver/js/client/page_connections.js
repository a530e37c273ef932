/**
 * Registry of the page's connections by the address of their server, and the event that reports a new one.
 *
 * There is one for the whole page: a bundle and PyScript may each load a copy of this file, and a tab must attach only once. It
 * makes no connection: see `connect.js`.
 *
 * @import { Connection } from "./connection.js"
 */

const SHARED = Symbol.for("tabrelay.connections");
/** Dispatched on the window for each new connection. */
export const OPENED = "tabrelay-connection";

const page = /** @type {any} */ (globalThis);
/** By the relay's origin and the server's name: `http://127.0.0.1:4747/notes`. @type {Map<string, Connection>} */
export const connections = (page[SHARED] ??= new Map());

/**
 * @param {string} address
 * @param {Connection} connection
 */
export function addConnection(address, connection) {
  connections.set(address, connection);
  globalThis.dispatchEvent(new Event(OPENED));
}

/**
 * The connection of a server, and its address; without a name, the page's first connection that is not closed.
 * @param {string | null} server
 * @returns {[string, Connection] | undefined}
 */
export function findConnection(server) {
  const all = [...connections].filter(([, { state }]) => !server || state.server === server);
  return all.find(([, { isClosed }]) => !isClosed) ?? all.at(-1);
}
