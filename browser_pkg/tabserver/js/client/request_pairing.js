/**
 * Pairing request of a page on another origin than the relay's. The page shows a code, and waits until the user has
 * approved it in the relay's terminal or on its page. The token's keys are then kept in this origin's storage; the relay takes them
 * from this origin and for this server only.
 *
 * @import { Pairing } from "../client.js"
 * @import { Keys } from "../proof.js"
 */

import { findKeys, keepKeys } from "./key_store.js";
import { tokenKey } from "./redeem_code.js";
import { showPanel } from "./corner_panel.js";
import { pause } from "./locks.js";

const ANSWER_MS = 30_000; // the relay answers after 20 s at the latest
const BREATH_MS = 1_000;
/** Busy, going away, or its disk is full: the request is still good. */
const LATER = [429, 503, 507];
const LATER_MS = 3_000;
const ARRIVAL_MS = 2_000; // what another tab stored is seen here a few ms later, on a busy machine more
const LOOK_MS = 20;

/**
 * The keys that this page has or gets; or why it gets none. One tab asks at a time: the others have what it gets.
 *
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} signal
 * @param {(detail: Pairing) => boolean} tell the code to show; true if the page shows it itself
 * @param {string} [refused] the id of a key that the relay does not know; it stays until there is another
 * @returns {Promise<{ keys?: Keys, problem?: string }>}
 */
export async function askToPair(relay, server, signal, tell, refused) {
  const key = tokenKey(relay, server);
  const lock = `tabrelay-asking:${relay}`;
  /** @param {number} arrival_ms */
  const findOrAsk = async (arrival_ms) => {
    const known = await stored(key, arrival_ms, signal, refused);
    if (known) return { keys: known };
    const { token, problem } = await ask(relay, server, signal, tell);
    return token ? { keys: await keepKeys(key, token) } : { problem };
  };
  try {
    const alone = await navigator.locks.request(lock, { ifAvailable: true }, (got) => (got ? findOrAsk(0) : undefined));
    // Another tab asks, and may get what this one needs.
    return alone ?? (await navigator.locks.request(lock, { signal }, () => findOrAsk(ARRIVAL_MS)));
  } catch (error) {
    if (signal.aborted) return {};
    return { problem: `The relay could not be asked: ${error instanceof Error ? error.message : error}` };
  }
}

/**
 * The keys in this origin's storage. A lock passes between two tabs faster than what the first has stored.
 *
 * @param {string} key
 * @param {number} arrival_ms how long to look for it
 * @param {AbortSignal} signal
 * @param {string | undefined} refused
 * @returns {Promise<Keys | undefined>}
 */
async function stored(key, arrival_ms, signal, refused) {
  const end = performance.now() + arrival_ms;
  for (;;) {
    signal.throwIfAborted();
    const known = await findKeys(key);
    const isNew = known?.worker.id !== refused;
    if ((known && isNew) || performance.now() >= end) return isNew ? known : undefined;
    await pause(LOOK_MS, signal);
  }
}

/**
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} signal
 * @param {(detail: Pairing) => boolean} tell
 * @returns {Promise<{ token?: string, problem?: string }>}
 */
async function ask(relay, server, signal, tell) {
  const asked = await post(`${relay}/-/ask`, { server }, signal);
  if (asked.status !== 200) return { problem: String(asked.body.message ?? `It answered ${asked.status}.`) };
  const { request, code, expires_s } = asked.body;
  const detail = { relay, server, code: String(code), expires_ms: Date.now() + Number(expires_s) * 1000 };
  const close = tell(detail) ? () => {} : showCode(detail);
  try {
    return await answerTo(request, relay, signal);
  } finally {
    close();
  }
}

/**
 * @param {string} request
 * @param {string} relay
 * @param {AbortSignal} signal
 * @returns {Promise<{ token?: string, problem?: string }>}
 */
async function answerTo(request, relay, signal) {
  for (;;) {
    signal.throwIfAborted();
    const { status, body } = await post(`${relay}/-/ask/answer`, { request }, signal);
    if (status === 200 && body.state === "approved") return { token: String(body.token) };
    const isForNow = LATER.includes(status);
    if (status !== 200 && !isForNow) return { problem: String(body.message ?? `It answered ${status}.`) };
    await pause(isForNow ? LATER_MS : BREATH_MS, signal);
  }
}

/**
 * @param {string} url
 * @param {object} body
 * @param {AbortSignal} given_up
 * @returns {Promise<{ status: number, body: Record<string, any> }>}
 */
async function post(url, body, given_up) {
  const signal = AbortSignal.any([AbortSignal.timeout(ANSWER_MS), given_up]);
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store", signal });
  return { status: response.status, body: await response.json() };
}

/** @param {Pairing} detail */
function showCode({ relay, server, code }) {
  return showPanel({
    title: `This page wants to offer tools as “${server}”`,
    text: ["To let the AI clients of your computer use them, approve this code:"],
    code,
    details: { label: "In the terminal", text: `tabrelay pairs approve ${code}` },
    link: { label: "Approve it on the relay’s page", href: `${relay}/` },
  });
}
