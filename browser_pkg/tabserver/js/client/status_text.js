/**
 * Words of `<tabrelay-status>`: what a connection's state, tabs and start of Python are in a few words, and what the user can do.
 *
 * A pure function of what the connection reports. The sentences about a reason are those of `reasons.js`. It touches no document:
 * see `status_element.js`.
 *
 * @import { Boot, Catalogue, State } from "../client.js"
 * @import { Remedy } from "./reasons.js"
 */

import { REASONS } from "./reasons.js";

/**
 * @typedef {{ state: State, boot: Boot | null, catalogue: Catalogue | null }} Reported the part of a connection that is shown
 * @typedef {object} StatusText
 * @property {"ok" | "busy" | "problem" | "off"} lamp
 * @property {string} label
 * @property {string} server
 * @property {string} tabs how many tabs of this browser offer the server; empty: not known
 * @property {{ happened: string, todo: string, help: string } | null} reason `help`: the code of the entry in the reference, or empty
 * @property {string} action the label of the button that acts on it; empty: there is nothing to press
 * @property {Remedy} remedy what that button does
 */

const ACTIONS = { retry: "Connect", ask: "Ask again", reload: "Reload", none: "" };
const MEGABYTE = 1_000_000;
/** A reason of a page that has no connection. */
const NONE = {
  happened: "This page has not called connect().",
  todo: "The app decides when it connects.",
  help: "",
};

/**
 * @param {Reported | undefined} connection
 * @param {string} [server] the name that the app gave, while there is no connection
 * @returns {StatusText}
 */
export function describeStatus(connection, server = "") {
  if (!connection) {
    return { lamp: "off", label: "Not connected", server, tabs: "", reason: NONE, action: ACTIONS.retry, remedy: "retry" };
  }
  const { state, boot, catalogue } = connection;
  const reason = reasonOf(state);
  const remedy = remedyOf(state);
  const isConnected = state.state === "connected";
  return {
    lamp: isConnected ? "ok" : state.state === "connecting" || state.code === "pairing" ? "busy" : "problem",
    label: label(state, boot),
    server: state.server,
    tabs: isConnected ? tabs(catalogue?.tabs) : "",
    reason,
    action: ACTIONS[remedy],
    remedy,
  };
}

/**
 * @param {State} state
 * @param {Boot | null} boot
 */
function label({ state, code }, boot) {
  if (state === "connected") return "Connected";
  if (code === "pairing") return "Waiting for approval";
  if (state !== "connecting") return "Not connected";
  if (boot?.stage === "download" && boot.loaded && boot.total) {
    return `Starting, ${megabytes(boot.loaded)} of ${megabytes(boot.total)} MB`;
  }
  return boot && boot.stage !== "ready" ? "Starting" : "Connecting";
}

/** @param {number} bytes */
function megabytes(bytes) {
  return (bytes / MEGABYTE).toFixed(1);
}

/** @param {number | undefined} count */
function tabs(count) {
  return count ? `${count} ${count === 1 ? "tab" : "tabs"}` : "";
}

/**
 * The message in two parts, which a page shows on two lines.
 * @param {State} state
 */
function reasonOf({ code, message, todo, help }) {
  if (!code || !message) return null;
  // A connection of an older copy of the client may have the message only.
  const advice = todo && message.endsWith(todo) ? todo : "";
  return { happened: message.slice(0, message.length - advice.length).trim(), todo: advice, help: help ?? "" };
}

/**
 * @param {State} state
 * @returns {Remedy}
 */
function remedyOf({ state, code }) {
  // A page that waits for its approval, or starts, does that without the user.
  if (state === "connecting" || code === "pairing" || (state === "connected" && !code)) return "none";
  return (code && REASONS[code]?.remedy) || "retry";
}
