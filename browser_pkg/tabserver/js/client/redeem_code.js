/**
 * Pairing of the relay's own pages: exchanges the one-time code in the address bar for keys in this origin's storage.
 *
 * It also sends the requests of these pages to the relay, with a proof of the page's key. The relay accepts that key from this
 * origin only, and not for MCP calls. Pages of other origins pair in another way: see `client/request_pairing.js`.
 *
 * @import { Keys } from "../proof.js"
 */

import { SERVES_APP } from "../build.js";
import { findKeys, keepKeys } from "./key_store.js";
import { prove } from "../proof.js";

/** Headers of a request with a JSON body. */
export const JSON_HEADERS = { "Content-Type": "application/json" };
export const TOKEN_KEY = "tabrelay.token";

/**
 * Is this a page of the relay itself, and not of an app that `tabrelay dev` serves at the relay's address?
 * @param {string} relay
 */
export function isOwnPage(relay) {
  return relay === location.origin && !SERVES_APP;
}

/**
 * The storage key of a page's keys: one for all servers on the relay's own origin, one for each server on another origin.
 * @param {string} relay
 * @param {string} server
 */
export function tokenKey(relay, server) {
  return isOwnPage(relay) ? TOKEN_KEY : `${TOKEN_KEY}:${relay}/${server}`;
}

/** One exchange for all connections of the page: a code works once. @type {Promise<string | undefined> | undefined} */
let redeeming;

/** Is this browser paired with the relay that serves this page? */
export function isPaired() {
  return Boolean(localStorage.getItem(TOKEN_KEY));
}

/** A little less than the relay accepts a proof. */
const PROOF_LIFETIME_MS = 30_000;
/** The last proof. @type {{ bearer: string, made_ms: number } | undefined} */
let lastProof;

/**
 * Send a request of a page of the relay, after the relay has proved itself. Throws Unproven, as `prove` does.
 * @param {string} path
 * @param {RequestInit & { signal: AbortSignal }} init
 * @returns {Promise<Response>}
 */
export async function askRelay(path, init) {
  for (let attempt = 1; ; attempt++) {
    if (!lastProof || performance.now() - lastProof.made_ms > PROOF_LIFETIME_MS || attempt > 1) {
      const keys = await findKeys(TOKEN_KEY);
      const bearer = keys ? (await prove(location.origin, keys.page, init.signal)).bearer : "";
      lastProof = { bearer, made_ms: performance.now() };
    }
    const headers = { ...JSON_HEADERS, Authorization: `Bearer ${lastProof.bearer}` };
    const answer = await fetch(path, { ...init, headers });
    if (answer.status !== 401 || attempt > 1) return answer;
  }
}

/**
 * Redeem the code in the address bar, if there is one, and return the keys that this origin has.
 * @param {string} [relay]
 * @returns {Promise<{ keys: Keys | undefined, problem: string | undefined }>}
 */
export async function pair(relay = new URL(import.meta.url).origin) {
  const code = new URLSearchParams(location.hash.slice(1)).get("pair");
  if (code && isOwnPage(relay)) {
    // Before anything else, so that the code does not stay in the history or in a bookmark.
    history.replaceState(history.state, "", location.pathname + location.search);
    redeeming = redeem(relay, code);
  }
  const problem = await redeeming;
  return { keys: await findKeys(TOKEN_KEY), problem };
}

/**
 * @param {string} relay
 * @param {string} code
 * @returns {Promise<string | undefined>} what went wrong
 */
async function redeem(relay, code) {
  try {
    const response = await fetch(`${relay}/-/pair`, {
      method: "POST",
      headers: JSON_HEADERS,
      body: JSON.stringify({ code }),
    });
    const answer = await response.json();
    if (!response.ok) return String(answer.message ?? `The relay refused the pairing code (${response.status}).`);
    await keepKeys(TOKEN_KEY, String(answer.token));
    lastProof = undefined;
    return undefined;
  } catch (error) {
    return `The pairing code could not be redeemed: ${error instanceof Error ? error.message : error}`;
  }
}
