/**
 * Web Locks and pauses, for pages.
 *
 * Every wait ends when its signal is aborted or its time is over. The names of the locks belong to the callers.
 */

/**
 * Wait for a time, or without a limit, until `signal` is aborted.
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
 * Acquire a Web Lock and hold it. Returns the function that releases it, or undefined if another page or worker holds the lock
 * for longer than `wait_ms`.
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
 * Wait until a Web Lock is free. Returns false if `signal` was aborted before.
 * The request is shared, so that all tabs that wait for one worker get the lock at the same time.
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
