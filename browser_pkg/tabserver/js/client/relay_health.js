/**
 * The relay, as the window asks after it: before there is a worker, and so that the browser has a window to ask in.
 *
 * @import { Why } from "../client.js"
 */

import { HEALTH_PATH } from "../proof.js";

const HEALTH_TIMEOUT_MS = 5_000;
/** What browsers call the permission to reach this computer, the newest name first. */
const PERMISSIONS = ["loopback-network", "local-network-access"];

/**
 * The build of the relay that answers there; undefined if none does. The window asks first: a browser that wants the
 * user's permission to reach the local network can show its question only there.
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
 * Why the relay did not answer. A browser says of a blocked request no more than that it failed, but it can be asked
 * whether the page has the permission.
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
      // Not known by this name.
    }
  }
  return undefined;
}

/** Pages of this computer may reach it without asking. @param {string} host */
function isLoopback(host) {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127(\.\d+){3}$/.test(host);
}
