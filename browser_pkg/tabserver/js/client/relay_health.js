/**
 * Health check of the relay by the page, and the reason if it can't be reached.
 *
 * The page asks before it starts the worker: a browser that needs the user's permission for the local network can show its
 * prompt only in a window. Nothing is sent but the request itself, since the relay has not proved itself yet.
 *
 * @import { Why } from "../client.js"
 */

import { HEALTH_PATH } from "../proof.js";

const HEALTH_TIMEOUT_MS = 5_000;
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
    return response.ok ? String((await response.json()).build) : undefined;
  } catch {
    return undefined; // refused, reset or timed out: `whyUnreachable` finds out
  }
}

/**
 * Why the relay did not answer. A browser reports a blocked request only as failed, but the state of the permission can be
 * queried.
 *
 * @param {string} relay
 * @returns {Promise<{ why: Why, message: string }>}
 */
export async function whyUnreachable(relay) {
  const permission = isLoopback(location.hostname) ? "granted" : await permissionState();
  if (permission === "denied") {
    const how = isSecureContext
      ? "Open the site's settings (the icon beside the address), allow access to apps on this device, and reload."
      : "Only pages with https can be allowed to: serve this one with https.";
    return { why: "blocked", message: `The browser does not let ${location.origin} reach the relay at ${relay}. ${how}` };
  }
  if (permission === "prompt") {
    const message = `The browser wants to know whether ${location.origin} may reach this computer, where the relay is. ` +
      `Allow it, and try again. (If it does not ask: is the relay running at ${relay}?)`;
    return { why: "blocked", message };
  }
  return { why: "relay_down", message: `No relay answers at ${relay}. Start it with: tabrelay serve` };
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
function isLoopback(host) {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}
