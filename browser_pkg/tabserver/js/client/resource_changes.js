/**
 * Waiters for the next change of a resource: a call of an app's page ends when the state that it shows differs.
 *
 * The number of waiters is bounded; one too many is answered at once, and its page asks again a moment later. It compares no
 * contents.
 */

const MOST_WAITERS = 256;

export class ResourceChanges {
  /** @type {Set<{ uri: string, resolve: () => void }>} */
  #waiting = new Set();

  /** @param {string} uri */
  notify(uri) {
    for (const waiter of this.#waiting) if (waiter.uri === uri) waiter.resolve();
  }

  /**
   * Resolves with the next change, after a time, or when the signal is aborted; at once when too many wait.
   * @param {string} uri
   * @param {number} ms
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  next(uri, ms, signal) {
    return new Promise((done) => {
      const resolve = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", resolve);
        this.#waiting.delete(waiter);
        done();
      };
      const waiter = { uri, resolve };
      const timer = setTimeout(resolve, ms);
      if (this.#waiting.size >= MOST_WAITERS || signal.aborted) return resolve();
      this.#waiting.add(waiter);
      signal.addEventListener("abort", resolve);
    });
  }
}
