/**
 * Entry point of the playground's frame: runs JavaScript here, and Python in a worker of the frame.
 *
 * The frame's origin is opaque, and its policy lets it load the runtime and nothing else. The page sends a port in the first
 * message; all else goes over that port. A JavaScript program is a module in this document, so it can draw into it. Python's output
 * and the images that its tools return are shown here too.
 */

import { runJavaScript } from "./javascript.js";
import { serve } from "./runtime.js";
import { OutputView } from "./output_view.js";

// No policy of a document forbids the connections of WebRTC.
// defence: the playground's programs have no WebRTC
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection"]) Reflect.deleteProperty(globalThis, name);
addEventListener("message", start, { once: true });

/** @param {MessageEvent} event */
function start({ data, ports: [port], source }) {
  if (source !== parent || !port) return;
  if (data.language === "python") startPython(port);
  else serve(port, runJavaScript);
}

/** @param {MessagePort} port */
function startPython(port) {
  const view = new OutputView(document.body);
  // A worker's script must have the frame's own origin, which only a blob of the frame has. Chromium starts a classic worker from it,
  // and no module worker; a classic worker can import modules too.
  const code = JSON.stringify(new URL("python_worker.js", import.meta.url).href);
  const script = `onmessage = ({ ports: [port] }) => import(${code}).then(({ start }) => start(port));`;
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(address, { name: "playground-python" });
  worker.onmessage = ({ data }) => view.show(data);
  worker.onerror = (event) => {
    event.preventDefault();
    console.error("tabrelay: The worker of the playground's Python failed. [TR492]", event.message);
  };
  worker.postMessage({}, [port]);
}
