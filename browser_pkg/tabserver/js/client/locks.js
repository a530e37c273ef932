/** Waiting, for pages: for a time, and for Web Locks. Nothing here knows what is waited for. */

/**
 * Wait for a time, or for ever, but no longer than until `signal` is aborted.
 * @param {number | undefined} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

/**
 * Take a Web Lock and keep it. Returns the function that releases it, or undefined if somebody else has the lock, and
 * has it still after `wait_ms`.
 * @param {string} name
 * @param {number} [wait_ms]
 * @returns {Promise<(() => void) | undefined>}
 */
export function holdLock(name, wait_ms = 0) {
  const options = wait_ms ? { signal: AbortSignal.timeout(wait_ms) } : { ifAvailable: true };
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(name, options, (lock) => {
        if (!lock) return resolve(undefined);
        return new Promise((release) => resolve(() => release(undefined)));
      })
      .catch((error) => (error.name === "TimeoutError" ? resolve(undefined) : reject(error)));
  });
}

/**
 * Wait until nobody holds a Web Lock. Returns false if `signal` was aborted before.
 * Shared mode, so that all tabs that wait for one worker learn of its death at once.
 * @param {string} name
 * @param {AbortSignal} signal
 */
export async function whenFree(name, signal) {
  try {
    await navigator.locks.request(name, { mode: "shared", signal }, () => {});
    return true;
  } catch {
    return false;
  }
}
