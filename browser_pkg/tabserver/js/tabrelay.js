// Loader of the relay's modules for an app on another origin. It retries until the relay runs. The app hosts this file: its page
// imports it, and its shared worker runs it. It contains no other code of Tabrelay.

export const RELAY = "http://127.0.0.1:4747";

/** A module of the relay. The promise resolves when the relay runs, and is never rejected. */
export async function load(name = "client.js") {
  // defence: load again until the relay answers
  for (let attempt = 0; ; attempt++) {
    try {
      if (attempt > 0) await fetch(`${RELAY}/-/healthz`, { cache: "no-store", signal: AbortSignal.timeout(5_000) });
      // Each attempt has another path, because Firefox does not load a module again that failed once.
      return await import(`${RELAY}/-/${attempt > 0 ? `retry/${attempt}/` : ""}${name}`);
    } catch (error) {
      if (attempt === 0) console.info(`tabrelay: ${name} comes as soon as ${RELAY} answers (${error})`);
    }
    await new Promise((resolve) => setTimeout(resolve, attempt < 30 ? 1_000 : 2_000));
  }
}

const scope = /** @type {any} */ (globalThis);
if (!scope.document) {
  // In the worker: store the tabs that connect before the relay's worker.js is loaded.
  const early = /** @type {Event[]} */ ([]);
  // defence: keep tabs that connect before the relay's code is loaded
  if ("onconnect" in scope) scope.onconnect = (/** @type {Event} */ event) => early.push(event);
  load("worker.js").then(() => early.forEach((event) => scope.onconnect(event)));
}
