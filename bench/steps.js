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
const [shim, { readHead, restore }, { loadPyodide }, { default: create }] = await Promise.all([
  import(`${relay}/-/worker/python_bridge.js`),
  import(`${relay}/-/worker/snapshot.js`),
  import(`${indexURL}pyodide.mjs`),
  import(`${indexURL}pyodide.asm.mjs`),
]);
const bytes = async (url) => (await fetch(url)).arrayBuffer();

/** Pyodide reads the head only: the memory is restored where it is. */
function fromSnapshot(file) {
  const createPyodideModule = async (settings) => {
    const c = await create(settings);
    restore(await file, c.HEAPU8);
    return c;
  };
  return { _loadSnapshot: file.then(readHead), createPyodideModule };
}

const options = {
  stock: () => ({ stdLibURL: `${indexURL}python_stdlib_source.zip` }),
  library: () => ({}),
  snapshot: () => fromSnapshot(bytes(relay + manifest.snapshot.url)),
}[step]();
const archive = options._loadSnapshot ? undefined : bytes(relay + manifest.tabserver);
const python = await loadPyodide({ indexURL, ...options });
if (archive) python.unpackArchive(await archive, "zip");
accept = python.pyimport("tabserver.worker.main").start(shim, `${relay}/`, manifest.build, manifest.version);
for (const port of ports) accept(port);
