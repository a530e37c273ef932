/**
 * The shared worker: boots Pyodide once and hands the ports of all tabs to Python (`tabserver.worker`).
 *
 * It finds the relay by `import.meta.url`, never by `location`: a page of another origin starts it through a file of its
 * own with one static line, `import "http://localhost:4747/-/worker.js";`. It knows nothing of MCP, tools or sockets.
 *
 * @import { BootMessage, FromPage, FromWorker, Manifest, PyodideModule } from "./ports.js"
 */

import { Meter } from "./meter.js";
import * as shim from "./shim.js";

const scope = /** @type {SharedWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const relay = new URL("/", import.meta.url).href;

/** Ports that came before Python was ready. @type {Set<MessagePort>} */
const early = new Set();
/** Takes over a port, once Python is ready. @type {((port: MessagePort) => void) | undefined} */
let accept;
/** @type {BootMessage} */
let stage = { t: "boot", stage: "download", loaded: 0 };

// Pages wait for this lock in order to learn that the worker died: nothing else tells them. Its name is this instance's
// own: a worker of an older build may live on beside this one for minutes.
const lock = `tabrelay-worker:${scope.name}:${crypto.randomUUID()}`;
const lockHeld = new Promise((/** @type {(value: void) => void} */ resolve) => {
  navigator.locks.request(lock, () => {
    resolve();
    return new Promise(() => {});
  });
});

scope.onconnect = async (/** @type {MessageEvent} */ event) => {
  const port = /** @type {MessagePort} */ (event.ports[0]);
  await lockHeld;
  post(port, { t: "worker", lock });
  post(port, stage);
  if (accept) accept(port);
  else if (stage.stage === "failed") awaitRetry(port);
  else early.add(port);
};

boot().then(handOver, giveUp);

/** @param {(port: MessagePort) => void} take */
function handOver(take) {
  accept = take;
  tell({ t: "boot", stage: "ready" });
  for (const port of early) take(port);
  early.clear();
}

/** @param {unknown} error */
function giveUp(error) {
  console.error("tabrelay: the worker could not start", error);
  // Of a Python traceback the last line says what happened; the console has the rest.
  const lines = (error instanceof Error ? error.message : String(error)).trim().split("\n");
  tell({ t: "boot", stage: "failed", detail: lines.at(-1) ?? "" });
  for (const port of early) awaitRetry(port);
  early.clear();
}

/**
 * A worker that failed stays, so that it can say why to pages that come later. Asked to retry, it ends: the pages see the
 * lock go and start a fresh one.
 * @param {MessagePort} port
 */
function awaitRetry(port) {
  port.onmessage = (/** @type {MessageEvent<FromPage>} */ event) => {
    if (event.data.t === "retry") scope.close();
  };
}

/** @param {BootMessage} message */
function tell(message) {
  stage = message;
  for (const port of early) post(port, message);
}

/**
 * @param {MessagePort} port
 * @param {FromWorker} message
 */
function post(port, message) {
  port.postMessage(message);
}

/**
 * Bring up Python and return its way to take over a port.
 * @returns {Promise<(port: MessagePort) => void>}
 */
async function boot() {
  const realFetch = scope.fetch;
  const realInstantiate = WebAssembly.instantiateStreaming;
  const meter = new Meter((loaded, total) => {
    tell({ t: "boot", stage: "download", loaded, ...(total ? { total } : {}) });
  });
  try {
    return await Promise.race([meter.failed, load(meter)]);
  } finally {
    meter.stop();
    scope.fetch = realFetch;
    WebAssembly.instantiateStreaming = realInstantiate;
  }
}

/** @param {Meter} meter */
async function load(meter) {
  // Pyodide logs a failed download or a wasm that does not compile and then waits for ever: these two make it known.
  const realFetch = scope.fetch.bind(scope);
  const realInstantiate = WebAssembly.instantiateStreaming;
  scope.fetch = (input, init) => meter.watch(realFetch(input, init), input);
  WebAssembly.instantiateStreaming = async (source, imports) => {
    const instance = await realInstantiate(source, imports).catch((error) => meter.fail(error));
    meter.arrived();
    tell({ t: "boot", stage: "start" });
    return instance;
  };

  const response = await fetch(new URL("/-/manifest.json", relay), { cache: "no-cache" });
  const manifest = /** @type {Manifest} */ (await response.json());
  const indexURL = new URL(manifest.pyodide, relay).href;
  const [module, archive] = await Promise.all([
    /** @type {Promise<PyodideModule>} */ (import(`${indexURL}pyodide.mjs`)),
    fetch(new URL(manifest.tabserver, relay)).then((reply) => reply.arrayBuffer()),
  ]);
  const pyodide = await module.loadPyodide({ indexURL });
  pyodide.unpackArchive(archive, "zip");
  return pyodide.pyimport("tabserver.worker").start(shim, relay, manifest.build, manifest.version);
}
