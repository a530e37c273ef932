/**
 * Requests of the console to the relay's routes: rows, details, decisions. All of them have a deadline.
 *
 * A refusal is thrown as a `Refusal` with the relay's reason and text. It keeps nothing, except what `askRelay` keeps.
 */

import { askRelay } from "/-/client/redeem_code.js";

const ANSWER_MS = 10_000;
/** As long may a tool of an app run. */
const APP_MS = 300_000;

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{ name: string, hop: string, at: number, ms: number, why?: string | null }} Span
 * @typedef {{ at: number, id?: unknown, method?: string, params?: Record<string, any>, text?: string }} Notice
 *
 * @typedef {object} Detail everything that is captured of a call
 * @property {Row} row
 * @property {{ method: string, params: any, headers: Record<string, string> }} request
 * @property {Record<string, any> | null} response
 * @property {Notice[]} notices
 * @property {{ at: number, kind: string, text: string }[]} events
 * @property {number} dropped
 * @property {Span[]} [spans]
 * @property {number | null} [total_ms]
 * @property {{ offset_ms: number, error_ms: number } | null} [clock]
 * @property {false | { request: boolean, response: boolean }} truncated
 */

/** The relay refused a request. */
export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} reason
   * @param {string} message
   * @param {unknown} [help] the code of its entry in the reference
   */
  constructor(status, reason, message, help) {
    super(typeof help === "string" ? `${message} [${help}]` : message);
    this.name = "Refusal";
    this.status = status;
    this.reason = reason;
  }
}

/**
 * @param {string} path
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal, limit_ms?: number }} [options]
 * @returns {Promise<any>} null without a body
 */
export async function ask(path, { method, body, signal, limit_ms = ANSWER_MS } = {}) {
  const limit = AbortSignal.timeout(limit_ms);
  const init = {
    method: method ?? (body === undefined ? "GET" : "POST"),
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  };
  const answer = await askRelay(path, init);
  const text = await answer.text();
  /** @type {any} */
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    if (answer.ok) throw new Refusal(answer.status, "invalid", "The relay's answer is not JSON.");
  }
  if (answer.ok) return value;
  throw new Refusal(answer.status, String(value?.error ?? "error"), String(value?.message ?? `The relay answered with status ${answer.status}.`), value?.help);
}

/**
 * The result of a request that the page of an app makes at its server. The relay cancels it when `signal` ends.
 *
 * @param {{ server: string, method: string, params: Record<string, any>, tab?: string }} body
 * @param {AbortSignal} signal
 * @returns {Promise<Record<string, any>>}
 */
export async function askForApp(body, signal) {
  const { result, error } = await ask("/-/console/app", { body, signal, limit_ms: APP_MS });
  if (error) throw new Error(String(error.message));
  return result ?? {};
}

/** @param {string} id @param {AbortSignal} [signal] @returns {Promise<Detail>} */
export function readDetail(id, signal) {
  return ask(`/-/console/calls/${encodeURIComponent(id)}`, { ...(signal ? { signal } : {}) });
}

const PER_REQUEST = 100;

/**
 * Details of many calls, as far as the relay still has them.
 *
 * @param {string[]} ids
 * @returns {Promise<Detail[]>}
 */
export async function readDetails(ids) {
  /** @type {Detail[]} */
  const found = [];
  for (let at = 0; at < ids.length; at += PER_REQUEST) {
    const { details } = await ask("/-/console/details", { body: { ids: ids.slice(at, at + PER_REQUEST) } });
    found.push(...details);
  }
  return found;
}
