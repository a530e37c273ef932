/**
 * Worker of the playground's frame: CPython (Pyodide), started as in a worker of the relay, and the Python programs in it.
 *
 * The interpreter is started once, before the first run. A hanging program is ended by the page, with its frame. It has no key, no
 * token and no connection: the page offers the tools.
 *
 * @import { Fault } from "./runtime.js"
 */

import { boot } from "/-/worker/boot.js";
import { serve } from "./runtime.js";

const relay = new URL("/", import.meta.url).href;
const scope = /** @type {DedicatedWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/** @param {MessagePort} port */
export function start(port) {
  startPython(port).catch((error) => port.postMessage({ t: "failed", message: `Python did not start: ${error?.message ?? error}` }));
}

/** @param {MessagePort} port */
async function startPython(port) {
  const bootstrap = fetch(new URL("program.py", import.meta.url)).then((answer) => answer.text());
  const { made: python } = await boot(relay, (/** @type {any} */ python) => python, () => {});
  const names = python.toPy({});
  python.runPython(await bootstrap, { globals: names, filename: "playground.py" });
  const run = names.get("run");
  const printed = (/** @type {string} */ stream, /** @type {string} */ text) => scope.postMessage({ t: "printed", stream, text });
  let isStarted = false;

  serve(showingImages(port), async (source, connection) => {
    if (!isStarted) names.get("start")(() => connection, printed);
    isStarted = true;
    scope.postMessage({ t: "clear" });
    return /** @type {Fault | null} */ (JSON.parse(run(source)));
  });
}

/**
 * The port, and each image of a result goes to the frame too.
 * @param {MessagePort} port
 */
function showingImages(port) {
  const send = port.postMessage.bind(port);
  port.postMessage = (/** @type {any} */ message) => {
    send(message);
    if (message.t !== "result" || !message.json.includes('"image"')) return;
    const { content } = JSON.parse(message.json);
    const images = content.filter((/** @type {{ type: string }} */ block) => block.type === "image");
    if (images.length) scope.postMessage({ t: "images", images });
  };
  return port;
}
