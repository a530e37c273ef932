/**
 * Start of the shared worker: its address, its port, and an error if its script does not load.
 *
 * The address contains the relay's build, so each build has its own worker. It does not use the port.
 */

/**
 * The address of the worker's script for one build of the relay.
 *
 * @param {string} relay
 * @param {string | URL | undefined} file on the app's origin, if that is not the relay's
 * @param {string} build
 */
export function workerAddress(relay, file, build) {
  const url = new URL(file ?? new URL("/-/worker.js", relay), document.baseURI);
  // Each build has its own worker: a new relay must not connect to code that an old one left running.
  url.searchParams.set("v", build);
  if (url.origin !== location.origin) {
    throw new Error(
      `A page of another origin than the relay's hosts the worker's file itself. Fetch it: ` +
        `curl -O ${relay}/-/tabrelay.js. Pass its address: connect({ server, relay, worker: "/tabrelay.js" })`,
    );
  }
  return url;
}

/**
 * Start the worker, or join it if another tab has started it. Returns the port.
 *
 * @param {URL} url
 * @param {string} name
 * @param {(problem: string) => void} failed
 * @returns {MessagePort}
 */
export function startShared(url, name, failed) {
  const worker = new SharedWorker(url, /** @type {WorkerOptions} */ ({ type: "module", name, extendedLifetime: true }));
  worker.onerror = () => failed(`The worker could not start. Does ${url.href} load?`);
  return worker.port;
}
