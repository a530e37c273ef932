// What Python is told of frames that come, by way of a slate of 16 bytes: {frames: [text, …]} in a file, a list of
// [what it is told, what is on the slate] out. After the first frame the memory is another one.
import { readFileSync } from "node:fs";
import { openSocket, useSharedBuffer } from "../../browser_pkg/tabserver/js/worker/python_bridge.js";

let memory = new ArrayBuffer(16);
let released = 0;
useSharedBuffer({ getBuffer: () => ({ data: new Uint8Array(memory), release: () => released++ }) });
globalThis.WebSocket = class {};
const told = [];
const socket = openSocket("", [], "", () => {}, (frame) => {
  told.push([frame, typeof frame === "number" ? new TextDecoder().decode(memory.slice(0, frame)) : null]);
}, () => {});
for (const data of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  socket.onmessage({ data });
  if (told.length === 1) memory = memory.transfer?.() ?? structuredClone(memory, { transfer: [memory] });
}
console.log(JSON.stringify({ told, released }));
