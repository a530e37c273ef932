/** The relay, as the window asks after it: before there is a worker, and so that the browser has a window to ask in. */

const HEALTH_TIMEOUT_MS = 5_000;

/**
 * The build of the relay that answers there; undefined if none does. The window asks first: a browser that wants the
 * user's permission to reach the local network can show its question only there.
 *
 * @param {string} relay
 * @param {AbortSignal} given_up
 * @returns {Promise<string | undefined>}
 */
export async function askHealth(relay, given_up) {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(HEALTH_TIMEOUT_MS), given_up]);
    const response = await fetch(`${relay}/-/healthz`, { cache: "no-store", signal });
    return response.ok ? String((await response.json()).build) : undefined;
  } catch {
    return undefined; // refused, reset or timed out: all mean that there is no relay to talk to
  }
}
