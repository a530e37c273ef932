// Bakes Python for browsers, in Pyodide under Node:
//
//   node bake.mjs library RUNTIME OUT              RUNTIME/python_stdlib.zip compiled, as OUT
//   node bake.mjs memory RUNTIME TABSERVER OUT     Python's memory after it has imported TABSERVER, as OUT
//
// What is decided inside Python stands in library.py and memory.py. `memory` insists on Node 20: what another Node leaves
// in a snapshot (a pointer to a trampoline of its WebAssembly engine) crashes some browsers, and 20 has none to leave.

import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const PAGE = 4096;
const BAKING_NODE = "20";

const verbs = { library, memory };
const [verb, runtime, ...rest] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${runtime}/pyodide.mjs`).href);
await verbs[verb](...rest);

/** Where nothing of this machine is to be seen: a snapshot keeps the environment and the path of the program. */
function start(options) {
  return loadPyodide({ indexURL: `${runtime}/`, env: {}, _sysExecutable: "./this.program", ...options });
}

async function library(out) {
  const python = await start();
  python.FS.writeFile("/library.zip", await bytes(`${runtime}/python_stdlib.zip`));
  await run(python, "library.py");
  await writeFile(out, python.FS.readFile("/compiled.zip"));
}

async function memory(archive, out) {
  if (process.versions.node.split(".")[0] !== BAKING_NODE) {
    throw new Error(`a snapshot must be made with Node ${BAKING_NODE}, this is ${process.version}`);
  }
  const python = await start({ _makeSnapshot: true });
  python.unpackArchive(await bytes(archive), "zip");
  await run(python, "memory.py");
  await writeFile(out, sparse(python.makeMemorySnapshot()));
}

async function run(python, script) {
  const url = new URL(script, import.meta.url);
  python.runPython(await readFile(url, "utf8"), { filename: script });
}

/** A plain Uint8Array: Pyodide does not take Node's Buffer everywhere. */
async function bytes(path) {
  return new Uint8Array(await readFile(path));
}

/**
 * Most of the memory is zero. Kept are the head that Pyodide reads and, of the memory behind it, the pages that are not zero,
 * after a table of where they belong; all numbers are 32 bits, least byte first: length of the whole, number of ranges, and for
 * each its offset and its length. js/worker/snapshot.js reads it.
 */
function sparse(whole) {
  const head = new DataView(whole.buffer, whole.byteOffset).getUint32(Uint32Array.BYTES_PER_ELEMENT, true);
  const ranges = [{ offset: 0, end: head }];
  for (let offset = head; offset < whole.length; offset += PAGE) {
    const end = Math.min(offset + PAGE, whole.length);
    if (!whole.subarray(offset, end).some((byte) => byte !== 0)) continue;
    const last = ranges.at(-1);
    if (last.offset !== 0 && last.end === offset) last.end = end;
    else ranges.push({ offset, end });
  }
  const table = new Uint32Array([whole.length, ranges.length, ...ranges.flatMap(({ offset, end }) => [offset, end - offset])]);
  const words = new DataView(new ArrayBuffer(table.byteLength));
  table.forEach((value, index) => words.setUint32(Uint32Array.BYTES_PER_ELEMENT * index, value, true));
  return Buffer.concat([new Uint8Array(words.buffer), ...ranges.map(({ offset, end }) => whole.subarray(offset, end))]);
}
