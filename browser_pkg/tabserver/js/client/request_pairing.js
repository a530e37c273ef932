/**
 * Pairing request of a page on another origin than the relay's.
 *
 * The page shows a code, and waits until the user has approved it in the relay's terminal or on its page. The token's keys are
 * then stored in this origin; the relay accepts them from this origin and for this server only. One tab asks at a time, and the
 * others use its keys. The relay's own pages redeem a code instead: see `client/redeem_code.js`.
 *
 * @import { Pairing } from "../client.js"
 * @import { Keys } from "../proof.js"
 */

import { findKeys, keepKeys } from "./key_store.js";
import { JSON_HEADERS, tokenKey } from "./redeem_code.js";
import { showPanel } from "./corner_panel.js";
import { pause } from "./locks.js";
import { Problem } from "./reasons.js";

const REQUEST_TIMEOUT_MS = 30_000; // the relay answers after 20 s at the latest
const POLL_PAUSE_MS = 1_000;
/** The relay is busy, restarting, or its disk is full: the request stays valid. */
const RETRY_STATUSES = [429, 503, 507];
const RETRY_MS = 3_000;
const STATUS_BAD_NAME = 400;
const OTHER_NAME = "Use another name.";
const STORAGE_DELAY_MS = 2_000; // storage of another tab is visible here a few ms later, on a busy machine more
const STORAGE_POLL_MS = 20;

/**
 * The keys that this page has or gets, or the reason why it gets none.
 *
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} signal
 * @param {(detail: Pairing) => boolean} onCode the code to show; true if the page shows it itself
 * @param {string} [refused] the id of a key that the relay does not know; it stays until there is another
 * @returns {Promise<{ keys?: Keys, problem?: Problem }>}
 */
export async function requestPairing(relay, server, signal, onCode, refused) {
  const key = tokenKey(relay, server);
  const lock = `tabrelay-asking:${relay}`;
  /** @param {number} delay_ms */
  const findOrAsk = async (delay_ms) => {
    const known = await waitForKeys(key, delay_ms, signal, refused);
    if (known) return { keys: known };
    const { token, problem } = await sendRequest(relay, server, signal, onCode);
    return token ? { keys: await keepKeys(key, token) } : { problem };
  };
  try {
    const first = await navigator.locks.request(lock, { ifAvailable: true }, (got) => (got ? findOrAsk(0) : undefined));
    // Another tab asks, and may get the keys that this one needs.
    return first ?? (await navigator.locks.request(lock, { signal }, () => findOrAsk(STORAGE_DELAY_MS)));
  } catch (error) {
    if (signal.aborted) return {};
    return { problem: new Problem("pairing_failed", { detail: `${error instanceof Error ? error.message : error}.` }) };
  }
}

/**
 * The keys in this origin's storage. A lock passes from one tab to the next before the first tab's storage is visible there.
 *
 * @param {string} key
 * @param {number} delay_ms how long to wait for them
 * @param {AbortSignal} signal
 * @param {string | undefined} refused
 * @returns {Promise<Keys | undefined>}
 */
async function waitForKeys(key, delay_ms, signal, refused) {
  const end = performance.now() + delay_ms;
  for (;;) {
    signal.throwIfAborted();
    const known = await findKeys(key);
    const isNew = known?.worker.id !== refused;
    if ((known && isNew) || performance.now() >= end) return isNew ? known : undefined;
    await pause(STORAGE_POLL_MS, signal);
  }
}

/**
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} signal
 * @param {(detail: Pairing) => boolean} onCode
 * @returns {Promise<{ token?: string, problem?: Problem }>}
 */
async function sendRequest(relay, server, signal, onCode) {
  const asked = await post(`${relay}/-/ask`, { server }, signal);
  if (asked.status !== 200) return { problem: refusal(asked, server) };
  const { request, code, expires_s } = asked.body;
  const detail = { relay, server, code: String(code), expires_ms: Date.now() + Number(expires_s) * 1000 };
  // The user has approved this port under another loopback name, or `tabrelay dev` serves the app: there is no code to show.
  const isApproved = asked.body.approved === true;
  const close = isApproved || onCode(detail) ? () => {} : showCodePanel(detail);
  try {
    return await pollAnswer(request, relay, server, signal);
  } finally {
    close();
  }
}

/**
 * @param {string} request
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} signal
 * @returns {Promise<{ token?: string, problem?: Problem }>}
 */
async function pollAnswer(request, relay, server, signal) {
  for (;;) {
    signal.throwIfAborted();
    const answer = await post(`${relay}/-/ask/answer`, { request }, signal);
    const { status, body } = answer;
    if (status === 200 && body.state === "approved") return { token: String(body.token) };
    const isTemporary = RETRY_STATUSES.includes(status);
    if (status !== 200 && !isTemporary) return { problem: refusal(answer, server) };
    await pause(isTemporary ? RETRY_MS : POLL_PAUSE_MS, signal);
  }
}

/**
 * Why the relay gives no token.
 * @param {{ status: number, body: Record<string, any> }} answer
 * @param {string} server
 */
function refusal({ status, body }, server) {
  const values = { server, origin: location.origin };
  if (body.error === "refused") return new Problem("pairing_refused", values);
  if (body.error === "expired" || body.error === "unknown") return new Problem("pairing_expired", values);
  if (status === STATUS_BAD_NAME) {
    // The relay's own text says which rule the name breaks, for example that browsers ask for it.
    const happened = String(body.message);
    return Object.assign(new Problem("server_invalid", values), { happened, todo: OTHER_NAME, message: `${happened} ${OTHER_NAME}` });
  }
  return new Problem("pairing_failed", { detail: String(body.message ?? `The relay answered ${status}.`) });
}

/**
 * @param {string} url
 * @param {object} body
 * @param {AbortSignal} cancelled
 * @returns {Promise<{ status: number, body: Record<string, any> }>}
 */
async function post(url, body, cancelled) {
  const signal = AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), cancelled]);
  const request = { method: "POST", headers: JSON_HEADERS, body: JSON.stringify(body) };
  const response = await fetch(url, { ...request, cache: "no-store", signal });
  return { status: response.status, body: await response.json() };
}

/** @param {Pairing} detail */
function showCodePanel({ relay, server, code, expires_ms }) {
  return showPanel({
    title: `Allow this page to offer tools as “${server}”?`,
    text: [
      "Tabrelay lets AI clients on your computer use tools of web pages. Approve this page in Tabrelay’s console if it shows the same code:",
    ],
    code,
    expires_ms,
    details: { label: "Approve it in a terminal instead", text: `tabrelay pairs approve ${code}` },
    link: { label: "Open the console to approve it", href: `${relay}/` },
  });
}
