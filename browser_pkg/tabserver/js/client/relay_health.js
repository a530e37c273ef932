/**
 * Health check of the relay by the page, and the reason if it can't be reached.
 *
 * The page asks before it starts the worker: a browser that needs the user's permission for the local network can show its
 * prompt only in a window. Nothing is sent but the request itself, since the relay has not proved itself yet.
 */

import { SERVES_APP } from "../build.js";
import { HEALTH_PATH } from "../proof.js";
import { pause } from "./locks.js";
import { directiveThatBlocked, VIOLATION_DELAY_MS } from "./policy.js";
import { Problem } from "./reasons.js";

const HEALTH_TIMEOUT_MS = 5_000;
/** The status of a relay that is about to restart. */
const STATUS_DRAINING = 503;
/** The names of the permission to reach this computer in different browsers, the newest first. */
const PERMISSIONS = ["loopback-network", "local-network-access"];

/**
 * The build of the relay at this address; undefined if none answers.
 *
 * @param {string} relay
 * @param {AbortSignal} cancelled
 * @returns {Promise<string | undefined>}
 */
export async function askHealth(relay, cancelled) {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(HEALTH_TIMEOUT_MS), cancelled]);
    const response = await fetch(`${relay}${HEALTH_PATH}`, { cache: "no-store", signal });
    const build = response.ok ? (await response.json()).build : undefined;
    return build === undefined ? undefined : String(build);
  } catch {
    return undefined; // refused, reset or timed out: `whyUnreachable` finds out
  }
}

/**
 * Why the relay did not answer. A browser reports a blocked request only as failed. The state of the permission can be queried,
 * violations of the policy are events, and a request whose response is hidden shows whether any program answers.
 *
 * @param {string} relay
 * @param {string} server
 * @param {AbortSignal} cancelled
 * @returns {Promise<Problem>}
 */
export async function whyUnreachable(relay, server, cancelled) {
  const values = { relay, server, start: startCommand(relay), origin: location.origin, socket: relay.replace(/^http/, "ws") };
  if (isMixedContent(relay)) return new Problem("mixed_content", values);
  const permission = isLoopback(location.hostname) ? "granted" : await permissionState();
  if (permission === "denied") return new Problem("network_denied", values);
  if (permission === "prompt") return new Problem("network_prompt", values);
  const answer = await findProgram(relay, cancelled);
  await pause(VIOLATION_DELAY_MS, cancelled);
  const directive = directiveThatBlocked(relay);
  if (directive) return new Problem("policy_blocks_relay", { ...values, directive });
  return new Problem(answer, values);
}

/** Browsers let a page of https use http only for this computer. @param {string} relay */
function isMixedContent(relay) {
  const { protocol, hostname } = new URL(relay);
  return location.protocol === "https:" && protocol === "http:" && !isLoopback(hostname);
}

/**
 * @param {string} relay
 * @param {AbortSignal} cancelled
 * @returns {Promise<"relay_down" | "not_a_relay" | "restarting">}
 */
async function findProgram(relay, cancelled) {
  const request = () => ({
    cache: /** @type {const} */ ("no-store"),
    signal: AbortSignal.any([AbortSignal.timeout(HEALTH_TIMEOUT_MS), cancelled]),
  });
  try {
    const response = await fetch(`${relay}${HEALTH_PATH}`, request());
    if (response.status === STATUS_DRAINING) return "restarting";
    // A relay that has come up meanwhile is asked again soon.
    const hasBuild = response.ok && Boolean((await response.json().catch(() => undefined))?.build);
    return hasBuild ? "restarting" : "not_a_relay";
  } catch {
    // No answer, or one that this page must not read.
  }
  try {
    await fetch(`${relay}${HEALTH_PATH}`, { ...request(), mode: "no-cors" });
    return "not_a_relay";
  } catch {
    return "relay_down";
  }
}

/**
 * The command that starts the relay of this page: that of the pages which the relay itself serves.
 * @param {string} relay
 */
export function startCommand(relay) {
  if (relay !== location.origin) return "tabrelay serve";
  if (SERVES_APP) return "tabrelay dev";
  return location.pathname.startsWith("/-/demo/") ? "tabrelay demo" : "tabrelay serve";
}

/** @returns {Promise<PermissionState | undefined>} undefined: the browser has no such permission */
async function permissionState() {
  for (const name of PERMISSIONS) {
    try {
      return (await navigator.permissions.query({ name: /** @type {PermissionName} */ (name) })).state;
    } catch {
      // This browser does not know the name.
    }
  }
  return undefined;
}

/** Pages of loopback addresses need no permission. @param {string} host */
export function isLoopback(host) {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}

/** Is this probably the address of an app under development? Besides loopback, names and addresses of a private network. @param {string} host */
export function isDeveloped(host) {
  const isPrivate = /^([^.:]+|.+\.(test|local|lan|internal)|0\.0\.0\.0|(10|192\.168|172\.(1[6-9]|2\d|3[01]))\..+)$/;
  return isLoopback(host) || isPrivate.test(host);
}
