/**
 * Start of the shared worker: its address, its port, and an error if its script does not load.
 *
 * The address contains the relay's build, so each build has its own worker. It does not use the port.
 */

import { Problem } from "./reasons.js";

/**
 * The address of the worker's script for one build of the relay. Throws the Problem of an address that a page can't use.
 *
 * @param {string} relay
 * @param {string | URL | undefined} file on the app's origin, if that is not the relay's
 * @param {string} build
 */
export function workerAddress(relay, file, build) {
  const url = new URL(file ?? new URL("/-/worker.js", relay), document.baseURI);
  const { origin } = location;
  if (url.origin !== origin) {
    throw new Problem(file === undefined ? "worker_option_missing" : "worker_other_origin", { file: url.href, relay, origin });
  }
  // Each build has its own worker: a new relay must not connect to code that an old one left running.
  url.searchParams.set("v", build);
  return url;
}

/**
 * Start the worker, or join it if another tab has started it. Returns the port.
 *
 * @param {URL} url
 * @param {string} name
 * @param {() => void} failed
 * @returns {MessagePort}
 */
export function startShared(url, name, failed) {
  const worker = new SharedWorker(url, /** @type {WorkerOptions} */ ({ type: "module", name, extendedLifetime: true }));
  worker.onerror = failed;
  return worker.port;
}
