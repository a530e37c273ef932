// Runs tabserver's worker in Pyodide under Node, and calls it: see worker.py, which starts this.
//
//   node worker.mjs RUNTIME TABSERVER SHIM CALLS BYTES [TOOL]     TOOL: profile calls to this one instead of timing them
//   node worker.mjs RUNTIME TABSERVER SHIM CALLS BYTES serve      for each line of input, the time of one kind of request

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [runtime, archive, shimFile, calls, bytes, mode] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientCapabilities": {},
  "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
};
const CALLER = JSON.stringify({
  era: "modern",
  version: "2026-07-28",
  principal: "token",
  client: META["io.modelcontextprotocol/clientInfo"],
  capabilities: {},
  ready: false,
});
const WELCOME = JSON.stringify({
  t: "welcome", sid: "s", epoch: "e", build: "b", resumed: false, rx: 0, grace_ms: 30000, max_msg: 1 << 24, window: 1024,
});
// As of an authorization server: for others the relay has to prove itself, and there is none.
const TOKEN = "eyJ.e.x";
const TOOL = `
from tabserver import tool

@tool
def in_worker(text: str) -> str:
    """Say it again."""
    return text
`;
const YARDSTICK = `
def yardstick():
    kept = {}
    for n in range(200):
        kept[str(n)] = isinstance(n, int) and [n]
    return len(kept)
yardstick
`;

const python = await loadPyodide({ indexURL: `${runtime}/` });
python.unpackArchive(new Uint8Array(await readFile(archive)), "zip");
python.runPython(TOOL);

// -- what a shared worker has and Node lacks ---------------------------------------------------------------------------

let socket;
globalThis.WebSocket = class {
  static OPEN = 1;
  bufferedAmount = 0;
  readyState = 1;
  constructor() {
    socket = this;
    queueMicrotask(() => this.onopen());
  }
  send(text) {
    this.at = process.hrtime.bigint();
    this.sent = text;
    if (text.startsWith('{"t":"hello"')) queueMicrotask(() => this.onmessage({ data: WELCOME }));
  }
  close() {}
};
globalThis.self ??= globalThis;
globalThis.addEventListener ??= () => {};
globalThis.fetch = async () => ({ ok: true, status: 200, text: async () => "{}" });
const locks = { request: () => new Promise(() => {}) };
Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });

/** A page's end: only calls matter here. */
const port = {
  postMessage(message) {
    this.at = process.hrtime.bigint();
    const { t, call, request, state } = JSON.parse(structuredClone(message));
    if (t === "state") this.state = state;
    if (t !== "call") return;
    const given = request.params.arguments;
    const text = given.text.repeat(Math.ceil(bytes / given.text.length));
    const json = JSON.stringify({ content: [{ type: "text", text }] });
    this.answer = structuredClone({ t: "result", call, json });
  },
  close() {},
};
const tell = (message) => port.onmessage({ data: structuredClone(message) });

// -- calls -------------------------------------------------------------------------------------------------------------

const shim = await import(pathToFileURL(shimFile).href);
// It was `tabserver.worker` in earlier versions.
const isPackage = python.runPython('import tabserver.worker; hasattr(tabserver.worker, "__path__")');
python.pyimport(isPackage ? "tabserver.worker.main" : "tabserver.worker").start(shim, "https://localhost/", "b", "1")(port);

const tab = { id: "t1", title: "Bench", url: "https://localhost/", visible: true, watches: false };
tell({ t: "attach", tab, lock: "l", server: "bench", token: TOKEN, modules: [], instance: null, readsText: true, readsRequests: true });
const inputSchema = { type: "object", properties: { text: { type: "string" } } };
tell({ t: "offer", tools: [{ name: "in_tab", description: "Say it again.", inputSchema }] });
while (port.state !== "connected") await new Promise((resolve) => setTimeout(resolve, 20));

let sent = 0;
let acknowledged = 0;

/**
 * Nanoseconds until the tab had the call (0 for what the worker does), from its answer until the relay had it, and in all.
 * @param {string} method
 * @param {{ name?: string }} params
 */
function request(method, params) {
  const head = `{"t":"msg","s":${++sent},"a":${acknowledged},"c":"c${sent}","k":"req","i":1,"o":${CALLER}}`;
  const data = `${head}\n${JSON.stringify({ jsonrpc: "2.0", id: 1, method, params })}`;
  socket.sent = "";
  const begun = process.hrtime.bigint();
  socket.onmessage({ data });
  const half = process.hrtime.bigint();
  const isInTab = params.name === "in_tab";
  if (isInTab) port.onmessage({ data: port.answer });
  const end = process.hrtime.bigint();
  if (!socket.sent.includes('"result"')) throw new Error(`no answer: ${socket.sent}`);
  acknowledged = Number(/"s":(\d+)/.exec(socket.sent)[1]);
  const [there, back] = isInTab ? [port.at - begun, socket.at - half] : [0, socket.at - begun];
  return { there: Number(there), back: Number(back), all: Number(end - begun) };
}

const call = (name, meta = META) => request("tools/call", { name, arguments: { text: "x".repeat(200) }, _meta: meta });

if (mode === "serve") {
  const asksProgress = { ...META, progressToken: "p" };
  const kinds = {
    "tool in the tab": () => call("in_tab"),
    "tool in the worker": () => call("in_worker"),
    "tool in the tab, asks for progress": () => call("in_tab", asksProgress),
    "tool in the worker, asks for progress": () => call("in_worker", asksProgress),
    "tools/list": () => request("tools/list", { _meta: META }),
    "server/discover": () => request("server/discover", { _meta: META }),
  };
  console.log(JSON.stringify({ ways: Object.keys(kinds) }));
  for await (const line of createInterface({ input: process.stdin })) {
    const begun = process.hrtime.bigint();
    for (let n = 0; n < calls; n++) kinds[line]();
    console.log(JSON.stringify({ us: Number(process.hrtime.bigint() - begun) / 1000 / calls }));
  }
  process.exit();
}

if (mode) {
  for (let n = 0; n < 500; n++) call(mode);
  python.runPython("import cProfile, pstats; profile = cProfile.Profile(); profile.enable()");
  for (let n = 0; n < calls; n++) call(mode);
  python.runPython("profile.disable(); pstats.Stats(profile).sort_stats('tottime').print_stats(60)");
  process.exit();
}

// A call is short, so most are not interrupted by other programs: the fastest eighth counts. Python gets
// many calls at once, so what one takes in all is the mean of a batch.
const BATCH = 64;
const fast = (times) => times.slice(times.length >> 2).sort((one, other) => one - other)[times.length >> 4] / 1000;
const mean = (values) => values.reduce((sum, value) => sum + value) / values.length;
const yardstick = python.runPython(YARDSTICK);
const took = { in_tab: [], in_worker: [] };
const batches = { in_tab: [], in_worker: [] };
const yards = [];
for (let n = 0; n < calls / BATCH; n++) {
  for (const [tool, times] of Object.entries(took)) {
    const batch = Array.from({ length: BATCH }, () => call(tool));
    times.push(...batch);
    batches[tool].push(mean(batch.map(({ all }) => all)));
  }
  const begun = process.hrtime.bigint();
  yardstick();
  yards.push(Number(process.hrtime.bigint() - begun));
}
const yard = fast(yards);
console.log(`yardstick: ${yard.toFixed(0)} µs`);
for (const [tool, times] of Object.entries(took)) {
  const [there, back] = ["there", "back"].map((part) => fast(times.map((time) => time[part])));
  const all = fast(batches[tool]);
  const steps = tool === "in_tab" ? `${there.toFixed(0)} µs until the tab has it, then ` : "";
  console.log(`${tool}: ${steps}${back.toFixed(0)} µs until it is answered; ${all.toFixed(0)} in all, ${(all / yard).toFixed(2)} × the yardstick`);
}
process.exit();
