/**
 * Entry point of the worker: boots Pyodide once and passes the ports of all tabs to Python (`tabserver.worker.main`).
 *
 * A shared worker gets ports from the browser; a dedicated worker, which one tab runs for all, accepts broadcast ports. The
 * relay's address comes from `import.meta.url`, never from `location`: a page of another origin starts this file through
 * `tabrelay.js` on its origin, which imports it and then repeats the earlier `connect` events. It contains no MCP and opens no
 * sockets.
 *
 * @import { BootMessage, FromPage, FromWorker } from "./ports.js"
 * @import { Port } from "./client/broadcast_port.js"
 */

import { boot, lastLine } from "./worker/boot.js";
import { acceptPorts } from "./client/broadcast_port.js";
import * as bridge from "./worker/python_bridge.js";
import { useOwner } from "./worker/task_store.js";

const scope = /** @type {SharedWorkerGlobalScope | DedicatedWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const relay = new URL("/", import.meta.url).href;

/** Ports that arrived before Python was ready. @type {Set<Port>} */
const earlyPorts = new Set();
/** Passes a port to Python; undefined until Python is ready. @type {((port: Port) => void) | undefined} */
let takePort;
/** @type {BootMessage} */
let stage = { t: "boot", stage: "download", loaded: 0 };

// Pages wait for this lock to detect that the worker has ended: a browser reports it in no other way. The name is unique to this
// instance, because a worker of an older build may run beside this one for minutes.
const lock = `tabrelay-worker:${scope.name}:${crypto.randomUUID()}`;
const lockHeld = new Promise((/** @type {(value: void) => void} */ resolve) => {
  navigator.locks.request(lock, () => {
    resolve();
    return new Promise(() => {});
  });
});
useOwner(lock);

if ("onconnect" in scope) {
  scope.onconnect = (event) => acceptPort(/** @type {MessagePort} */ (event.ports[0]));
} else {
  acceptPorts(`${scope.name} ${scope.location.href}`, acceptPort);
}

// A page for which the worker file is the wrong one ends this worker, so that a corrected file can take its place.
new BroadcastChannel(`tabrelay-end:${scope.name} ${scope.location.href}`).onmessage = () => scope.close();

/** @param {Port} port */
async function acceptPort(port) {
  await lockHeld;
  post(port, { t: "worker", lock, relay: new URL(relay).origin });
  post(port, stage);
  if (takePort) takePort(port);
  else if (stage.stage === "failed") awaitRetry(port);
  else earlyPorts.add(port);
}

// `boot_ms` in the worker's address is for tests and unusual networks: how long a boot may make no progress.
const boot_ms = Number(new URL(import.meta.url).searchParams.get("boot_ms")) || undefined;
boot(relay, startPython, report, boot_ms).then(finishBoot, failBoot);

/**
 * @param {any} python
 * @param {{ build: string, version: string }} about
 * @returns {(port: Port) => void}
 */
function startPython(python, { build, version }) {
  // After a fatal error, such as a stack overflow, Python answers no message but does not end by itself.
  bridge.usePyodide(python);
  python._api.on_fatal = () => scope.close();
  return python.pyimport("tabserver.worker.main").start(bridge, relay, build, version);
}

/** @param {Awaited<ReturnType<typeof boot<(port: Port) => void>>>} started */
function finishBoot({ made: takeOver, from, detail }) {
  takePort = takeOver;
  report({ t: "boot", stage: "ready", from, ...(detail ? { detail } : {}) });
  for (const port of earlyPorts) takeOver(port);
  earlyPorts.clear();
}

/** @param {unknown} error */
function failBoot(error) {
  console.error("tabrelay worker: Python could not start [TR463]", error);
  report({ t: "boot", stage: "failed", detail: lastLine(error) });
  for (const port of earlyPorts) awaitRetry(port);
  earlyPorts.clear();
}

/**
 * A worker that failed to boot stays, so that it can report the reason to later pages. A `retry` message ends it: the pages
 * then see its lock released and start another worker.
 * @param {Port} port
 */
function awaitRetry(port) {
  port.onmessage = (/** @type {MessageEvent<FromPage>} */ event) => {
    if (event.data.t === "retry") scope.close();
  };
}

/** @param {BootMessage} message */
function report(message) {
  stage = message;
  for (const port of earlyPorts) post(port, message);
}

/**
 * @param {Port} port
 * @param {FromWorker} message
 */
function post(port, message) {
  port.postMessage(message);
}
