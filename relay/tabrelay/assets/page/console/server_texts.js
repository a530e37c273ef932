/**
 * Texts about a server for the console: presence, trouble of an upstream, drift, and what was left out.
 *
 * Pure functions of an entry of `GET /-/status`.
 */

import { duration } from "../element.js";

/**
 * @typedef {{ name: string, title?: string, description?: string }} Tool
 * @typedef {{ name: string, why: string }} Flaw
 * @typedef {{ id: string, tool: string, principal: string, status: string, age_s: number, changed_s: number, expires_in_s: number }} Task
 *
 * @typedef {object} Server one entry of `GET /-/status`
 * @property {string} name
 * @property {"online" | "idle" | "offline"} state
 * @property {number} since_s
 * @property {number | null} last_seen_s
 * @property {string} mcp_url
 * @property {string | null} title
 * @property {Tool[]} tools
 * @property {number} in_flight
 * @property {string} [kind] browser, stdio or http
 * @property {string} [node] the relay that has its browser
 * @property {string | null} [browser]
 * @property {import("../browsers.js").Tab[]} [tabs]
 * @property {Task[]} [tasks] of its browser
 * @property {"connecting" | "connected" | "waiting" | "failed" | "suspended" | "stopped"} [connection] of an upstream
 * @property {number} [attempts] since the last connection
 * @property {number | null} [next_retry_s]
 * @property {string | null} [error] why it is not connected
 * @property {string | null} [era] of an upstream
 * @property {number} [sessions] of an upstream
 * @property {boolean} [stale] its lists may be out of date
 * @property {number} calls
 * @property {{ added: string[], removed: string[], changed: string[] } | null} [drift] since the first use
 * @property {Flaw[]} [left_out]
 * @property {Flaw[]} [suspicious]
 * @property {import("../browsers.js").Instance[]} [instances] the browsers that share the name, where several may
 */

/** The design's class for a state. @param {Server} server */
export function stateLook({ state, connection }) {
  if (state === "online") return "is-ok";
  if (state === "idle") return "is-warn";
  if (connection === "failed" || connection === "suspended") return "is-bad";
  return connection ? "is-warn" : "";
}

/** @param {number} s */
function whole(s) {
  return duration(Math.floor(s) * 1000 || 1000);
}

/** @param {Server} server */
export function presenceOf({ state, since_s, last_seen_s, title, connection }) {
  const called = title ? `, ${title}` : "";
  if (state === "online") return `online for ${whole(since_s)}${called}`;
  if (state === "idle") return `no page has been open for ${whole(since_s)}; only its worker answers${called}`;
  const how = connection ? `offline, ${connection}` : "offline";
  if (last_seen_s === null) return `${how}, never connected${called}`;
  return `${how}, last seen ${whole(last_seen_s)} ago${called}`;
}

/** Connection attempts of the relay to an upstream: how many so far, and what comes next. @param {Server} server */
export function planOf({ connection, attempts = 0, next_retry_s: next }) {
  const tried = attempts ? `${attempts} ${attempts === 1 ? "attempt" : "attempts"} so far. ` : "";
  if (typeof next === "number") return `${tried}The next one is in ${seconds(Math.max(1, Math.ceil(next)))}.`;
  if (connection === "failed") return `${tried}The next call tries again.`;
  if (connection === "suspended") return "It failed too often. The relay connects again when you press Connect now.";
  return `${tried}The relay is connecting to it.`;
}

/** @param {number} count */
function seconds(count) {
  return count < 120 ? `${count} s` : `${Math.round(count / 60)} min`;
}

/** @param {string} words */
export function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?…]$/u.test(text) ? text : `${text}.`;
}

/**
 * @param {Flaw[]} leftOut
 * @param {Flaw[]} suspicious
 */
export function flawsOf(leftOut, suspicious) {
  const list = (/** @type {Flaw[]} */ flaws) => flaws.map(({ name, why }) => `“${name}” ${why}`).join("; ");
  const parts = [];
  if (leftOut.length) parts.push(`Not offered to clients: ${list(leftOut)}.`);
  if (suspicious.length) parts.push(`Names that look alike: ${list(suspicious)}.`);
  return parts.join(" ");
}
