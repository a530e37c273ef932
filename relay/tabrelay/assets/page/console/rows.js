/**
 * Row of a call: its type, and what the console derives from it: outcome, title, texts for search, and rows made of the call log.
 *
 * Pure functions. Rows come from the relay's live stream, from session files, and, for calls before the console was open, from
 * the call log; those have no details.
 */

import { TOOLS_CALL } from "../mcp_methods.js";

/**
 * @typedef {"waiting" | "running" | "done" | "failed" | "refused" | "cancelled"} CallState
 *
 * @typedef {object} Row one captured call, as docs/reference/console-api.md describes it
 * @property {string} id
 * @property {number} seq
 * @property {string} group
 * @property {string} server
 * @property {string} method
 * @property {string | null} name
 * @property {string} kind
 * @property {{ name: string | null, version: string | null }} client
 * @property {string | null} era
 * @property {string | null} [principal]
 * @property {string} by
 * @property {string} peer
 * @property {string | null} [tab]
 * @property {string | null} [tab_title]
 * @property {number} started
 * @property {number | null} ms
 * @property {CallState} state
 * @property {number | null} code
 * @property {{ reason: string, message: string | null } | null} error
 * @property {string | null} [delivered]
 * @property {string | null} [approval]
 * @property {number} bytes_in
 * @property {number} bytes_out
 * @property {number | null} tokens_in
 * @property {number | null} tokens_out
 * @property {string | null} trace
 * @property {number} [rounds]
 * @property {number} [replays]
 * @property {string} [relay]
 * @property {boolean} [held] a breakpoint holds it
 * @property {boolean} [is_log] made of a line of the call log
 *
 * @typedef {object} LogLine one line of the call log
 * @property {string} time
 * @property {string} [server]
 * @property {string} [method]
 * @property {string} [name]
 * @property {string} [principal]
 * @property {string | null} [client]
 * @property {string} outcome
 * @property {string} [why]
 * @property {number} [ms]
 */

const OPEN = new Set(["waiting", "running"]);
const ERRORS = new Set(["failed", "refused"]);
const REFUSALS = new Set(["busy", "forbidden", "held", "rate_limited", "too_large", "too_many_sessions"]);

/** Does it still run? @param {Row} row */
export function isOpen({ state }) {
  return OPEN.has(state);
}

/** @param {Row} row */
export function isError({ state }) {
  return ERRORS.has(state);
}

/** The outcome in one word, as the call log has it. @param {Row} row */
export function outcomeOf({ state, error }) {
  return error?.reason ?? (state === "done" ? "ok" : state);
}

/** `add`, or `resources/read file:///a`. @param {Row} row */
export function titleOf({ method, name }) {
  if (method === TOOLS_CALL) return name ?? method;
  return name ? `${method} ${name}` : method;
}

/** The design's class for a state. @param {Row} row */
export function lookOf({ state }) {
  return { waiting: "is-warn", running: "is-run", done: "is-ok", failed: "is-bad", refused: "is-bad", cancelled: "" }[state];
}

/** @param {Row} row */
export function clientOf({ client, principal, by }) {
  if (by === "console") return "console";
  return client.name ?? principal ?? "";
}

/** @param {Row} row */
export function tabOf({ tab, tab_title: title, peer }) {
  return title || tab || (peer === "browser" ? "" : peer);
}

/** How long it has taken, also while it runs. @param {Row} row @param {number} now */
export function msOf(row, now) {
  return row.ms ?? Math.max(0, now - row.started);
}

/**
 * A row of a line of the call log. Null for a line that is no call.
 *
 * @param {LogLine} line
 * @param {number} index
 * @returns {Row | null}
 */
export function rowOfLog(line, index) {
  if (!line.server || !line.method) return null;
  const isOk = line.outcome === "ok" || line.outcome === "asks_client";
  const state = isOk ? "done" : line.outcome === "cancelled" ? "cancelled" : REFUSALS.has(line.outcome) ? "refused" : "failed";
  const id = `log-${line.time}-${index}`;
  const ended = Date.parse(line.time);
  return {
    id,
    seq: 0,
    group: id,
    server: line.server,
    method: line.method,
    name: line.name ?? null,
    kind: "call",
    client: { name: line.client ?? null, version: null },
    era: null,
    principal: line.principal ?? null,
    by: "client",
    peer: "",
    started: ended - (line.ms ?? 0),
    ms: line.ms ?? 0,
    state,
    code: null,
    error: isOk ? null : { reason: line.outcome, message: line.why ?? null },
    bytes_in: 0,
    bytes_out: 0,
    tokens_in: null,
    tokens_out: null,
    trace: null,
    is_log: true,
  };
}

/** `1.2 kB`. @param {number} bytes */
export function bytesText(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
