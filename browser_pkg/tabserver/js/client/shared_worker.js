/**
 * The shared worker, as a page starts it and learns of its failures. What is said over the port is not known here.
 */

/**
 * The address of the worker's script for one build of the relay.
 *
 * @param {string} relay
 * @param {string | URL | undefined} file the app's own, if the page is not on the relay's origin
 * @param {string} build
 */
export function workerAddress(relay, file, build) {
  const url = new URL(file ?? new URL("/-/worker.js", relay), document.baseURI);
  // Another build is another worker: a new relay must not talk to code that an old one left running.
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
 * Start the worker, or join it if another tab did. Gives the port to it.
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
