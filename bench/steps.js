// A worker as it would be with only some of what boot.js does, for bench/boot.py: `?step=` in its address says how much.
// What follows the boot is the product's own.

const { relay, step } = Object.fromEntries(new URL(import.meta.url).searchParams);
const ports = [];
// What pages wait for first: the lock that is held as long as the worker lives.
const lock = `steps:${crypto.randomUUID()}`;
const held = new Promise((resolve) => {
  navigator.locks.request(lock, () => {
    resolve();
    return new Promise(() => {});
  });
});
let accept = (port) => ports.push(port);
self.onconnect = async ({ ports: [port] }) => {
  await held;
  port.postMessage({ t: "worker", lock });
  accept(port);
};

const manifest = await (await fetch(`${relay}/-/manifest.json`)).json();
const indexURL = relay + manifest.pyodide;
const [shim, { loadPyodide }] = await Promise.all([
  import(`${relay}/-/worker/python_bridge.js`),
  import(`${indexURL}pyodide.mjs`),
]);
const bytes = async (url) => (await fetch(url)).arrayBuffer();

/** The snapshot with all of its zeroes: the reverse of `sparse` in browser_pkg/runtime/bake.mjs. */
function expand(file) {
  const table = new Uint32Array(file, 0, 2 + 2 * new Uint32Array(file, 0, 2)[1]);
  const whole = new Uint8Array(table[0]);
  let start = table.byteLength;
  for (let index = 2; index < table.length; index += 2) {
    whole.set(new Uint8Array(file, start, table[index + 1]), table[index]);
    start += table[index + 1];
  }
  return whole;
}

const options = {
  stock: () => ({ stdLibURL: `${indexURL}python_stdlib_source.zip` }),
  library: () => ({}),
  snapshot: () => ({ _loadSnapshot: bytes(new URL("whole.bin", import.meta.url)) }),
  sparse: () => ({ _loadSnapshot: bytes(relay + manifest.snapshot.url).then(expand) }),
}[step]();
const archive = options._loadSnapshot ? undefined : bytes(relay + manifest.tabserver);
const python = await loadPyodide({ indexURL, ...options });
if (archive) python.unpackArchive(await archive, "zip");
accept = python.pyimport("tabserver.worker.main").start(shim, `${relay}/`, manifest.build, manifest.version);
for (const port of ports) accept(port);
