/**
 * Challenge-response proof between the relay and pages or workers, so that the token itself is never sent.
 *
 * The relay proves that it knows the token's key, and then gets a proof instead of the token. Rules P1 to P6 of
 * docs/reference/link.md; the other side is `calls/proof.py` of the relay. Keys can't be exported, so code that gets into the page's origin can't copy
 * them. A message from a program that has not proved to be the relay is never shown to the user.
 *
 * @import { Why } from "./client.js"
 */

/**
 * A key, and the id by which the relay finds it. In a browser that can't send a CryptoKey to a worker, `key` is the raw key in
 * base64url.
 * @typedef {{ id: string, key: CryptoKey | string }} Key
 * @typedef {{ page: Key, worker: Key }} Keys `worker` may serve and nothing else
 * @typedef {{ bearer: string, socket: string }} Proof our proof, and the first message of a WebSocket of the real relay
 */

/** Where a relay answers without a token. */
export const HEALTH_PATH = "/-/healthz";
const HMAC = { name: "HMAC", hash: "SHA-256" };
const MAX_ANSWER_CHARACTERS = 1024;
/** The status of a relay that is about to restart. */
const STATUS_DRAINING = 503;
const encoder = new TextEncoder();

/** The relay has not proved itself. `why` is the reason in the page's state. */
export class Unproven extends Error {
  /**
   * @param {Why} why
   * @param {string} message
   */
  constructor(why, message) {
    super(message);
    this.why = why;
  }
}

/** Is it a token of an authorization server? The relay does not know those in advance. @param {string} token */
export function isAccessToken(token) {
  return /^eyJ[^.]*\.[^.]*\.[^.]*$/.test(token);
}

/** @param {string} token */
export async function keyOf(token) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", encoder.encode(token)));
}

/**
 * The page's and the worker's key of a token, derived from the token's raw key.
 * @param {Uint8Array<ArrayBuffer>} raw
 * @returns {Promise<Keys>}
 */
export async function keysFrom(raw) {
  const derived = await sign(await imported(raw), "serve key");
  return { page: await makeKey(raw), worker: await makeKey(derived) };
}

/**
 * The key with which a page of the relay calls the tools that its own origin offers, and nothing else. Derived from the page's key.
 * @param {Key} page
 * @returns {Promise<Key>}
 */
export async function callKey({ key }) {
  const signing = typeof key === "string" ? await imported(decode(key)) : key;
  return makeKey(await sign(signing, "call key"));
}

/**
 * @param {Uint8Array<ArrayBuffer>} raw
 * @returns {Promise<Key>}
 */
async function makeKey(raw) {
  const named = new Uint8Array([...encoder.encode("tabrelay key id\n"), ...raw]);
  const id = encode(new Uint8Array(await crypto.subtle.digest("SHA-256", named)).subarray(0, 16));
  return { id, key: canPassKeys() ? await imported(raw) : encode(raw) };
}

/**
 * WebKit (Safari, WebKitGTK) drops messages with a CryptoKey between a page and a shared worker, without an error: the worker
 * would not receive the page's `attach`.
 */
function canPassKeys() {
  const agent = globalThis.navigator?.userAgent ?? "";
  return !/AppleWebKit/.test(agent) || /Chrom(e|ium)\//.test(agent);
}

/**
 * Check the relay's proof, and make ours. Throws Unproven.
 * @param {string} relay
 * @param {Key} key
 * @param {AbortSignal} signal
 * @returns {Promise<Proof>}
 */
export async function prove(relay, key, signal) {
  const { host: authority, origin } = new URL(relay);
  const nonce = encode(crypto.getRandomValues(new Uint8Array(16)));
  const { status, answer } = await challenge(origin, { key: key.id, nonce, authority }, signal);
  if (status !== 200) throw refusal(origin, status, answer.error);
  const signing = typeof key.key === "string" ? await imported(decode(key.key)) : key.key;
  const parts = [authority, nonce, String(answer.nonce)];
  const [relays, ours, socket] = await Promise.all(
    ["relay", "client", "socket"].map(async (side) => encode(await sign(signing, side, ...parts))),
  );
  const isFormed = /^[\w-]+$/.test(String(answer.nonce));
  // defence: another program on the port: the worker checks the relay's signature
  if (!isFormed || answer.signature !== relays) {
    const stop = "Find out which program has the port and stop it; then start the relay.";
    throw new Unproven("unproven", `The program at ${origin} is not your relay. ${stop} Nothing was sent to it.`);
  }
  const bearer = `trp_${[key.id, encode(encoder.encode(authority)), nonce, answer.nonce, ours].join(".")}`;
  return { bearer, socket: String(socket) };
}

/**
 * @param {string} origin
 * @param {object} challengeBody
 * @param {AbortSignal} signal
 * @returns {Promise<{ status: number, answer: Record<string, unknown> }>}
 */
async function challenge(origin, challengeBody, signal) {
  try {
    // Without a JSON content type, pages of other origins need no preflight request.
    const body = JSON.stringify(challengeBody);
    const request = { method: "POST", body, signal, redirect: /** @type {const} */ ("error") };
    const response = await fetch(`${origin}/-/prove`, { ...request, cache: "no-store", credentials: "omit" });
    return { status: response.status, answer: await readObject(response) };
  } catch {
    if (signal.aborted) throw new Unproven("timeout", `The relay at ${origin} did not answer in time.`);
    await checkHealth(origin, signal);
    throw refusal(origin, 0, undefined);
  }
}

/**
 * Throws Unproven if nothing answers like a relay.
 * @param {string} origin
 * @param {AbortSignal} signal
 */
export async function checkHealth(origin, signal) {
  try {
    const { ok, status } = await fetch(`${origin}${HEALTH_PATH}`, { cache: "no-store", signal });
    if (ok || status === STATUS_DRAINING) return;
  } catch {
    // The same as an answer that is not a relay's.
  }
  throw new Unproven("relay_down", `No relay answers at ${origin}. Start it with: tabrelay serve`);
}

/**
 * A short JSON object; an empty object instead of anything else.
 * @param {Response} response
 * @returns {Promise<Record<string, unknown>>}
 */
async function readObject(response) {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done) break;
    text += decoder.decode(value, { stream: true });
    if (text.length > MAX_ANSWER_CHARACTERS) {
      await reader?.cancel();
      return {};
    }
  }
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/**
 * The reason why there is no proof.
 * @param {string} origin
 * @param {number} status 0: the answer could not be read
 * @param {unknown} error
 */
function refusal(origin, status, error) {
  if (status === 429 || status === 503) return new Unproven("lost", `The relay at ${origin} is busy.`);
  if (error === "unknown_key") {
    const why = "it was revoked, the relay has another home, or another program has the port";
    return new Unproven("unauthorized", `The program at ${origin} does not know this page: ${why}. Pair it again: tabrelay pair`);
  }
  if (error === "wrong_authority") {
    const { host } = new URL(origin);
    const fix = `Use http://127.0.0.1 and its port, or start it with: --allow-host ${host}`;
    return new Unproven("unproven", `The relay does not hold the address ${host}. ${fix}`);
  }
  const message = `The program at ${origin} is not your relay, or one of an earlier version. Update and restart the relay.`;
  return new Unproven("unproven", `${message} Nothing was sent to it.`);
}

/** @param {Uint8Array<ArrayBuffer>} raw */
function imported(raw) {
  // defence: another program on the port: a page's keys can't be exported
  return crypto.subtle.importKey("raw", raw, HMAC, false, ["sign"]);
}

/**
 * @param {CryptoKey} key
 * @param {string[]} parts
 */
async function sign(key, ...parts) {
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, encoder.encode(["tabrelay 1", ...parts].join("\n"))));
}

/** As base64url without padding. @param {Uint8Array} bytes */
export function encode(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} text */
export function decode(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
}
