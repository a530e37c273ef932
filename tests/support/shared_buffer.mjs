// Passes frames to Python through a shared buffer of 16 bytes. Reads [text, …] from a file; prints for each frame what Python
// received and what the buffer contains. The memory is replaced after the first frame.
import { readFileSync } from "node:fs";
import { openSocket, useSharedBuffer } from "../../browser_pkg/tabserver/js/worker/python_bridge.js";

let memory = new ArrayBuffer(16);
let released = 0;
useSharedBuffer({ getBuffer: () => ({ data: new Uint8Array(memory), release: () => released++ }) });
globalThis.WebSocket = class {};
const received = [];
const socket = openSocket("", [], "", () => {}, (frame) => {
  received.push([frame, typeof frame === "number" ? new TextDecoder().decode(memory.slice(0, frame)) : null]);
}, () => {});
for (const data of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  socket.onmessage({ data });
  if (received.length === 1) memory = memory.transfer?.() ?? structuredClone(memory, { transfer: [memory] });
}
console.log(JSON.stringify({ received, released }));
