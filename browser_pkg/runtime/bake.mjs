// Bakes Python for browsers, in Pyodide under Node:
//
//   node bake.mjs library RUNTIME OUT              RUNTIME/python_stdlib.zip compiled, as OUT
//   node bake.mjs memory RUNTIME TABSERVER OUT     Python's memory after it has imported TABSERVER, as OUT and OUT.zst
//   node bake.mjs compress RUNTIME FILE...         each file that shrinks, as FILE.zst
//
// Decisions inside Python are in library.py and memory.py. `memory` requires Node 20: other versions leave a pointer to a
// trampoline of their WebAssembly engine in the snapshot, which crashes some browsers.

import { readFile, writeFile } from "node:fs/promises";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

import { checksum, INITIAL, STORED, WORD } from "../tabserver/js/worker/snapshot.js";

const PAGE = 4096;
const BAKING_NODE = "20";
// Levels of zstandard. Browsers accept windows of up to 8 MiB, which is what level 19 takes.
const SMALLEST = 19;
const WORTH = 0.9; // of the size
const QUICK = 9; // for what is made anew with every change of tabserver: 0.4 MB more, in 1 s instead of 20

const verbs = { library, memory, compress };
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
  const whole = python.makeMemorySnapshot();
  const { initial, restored } = await restart(whole);
  const file = packed(whole, initial);
  await writeFile(out, file);
  await writeFile(`${out}.zst`, zstandard(restored, file, QUICK));
}

/** A Python that starts from this snapshot, and its memory before: what the wasm file puts there by itself. */
async function restart(whole) {
  const { default: create } = await import(pathToFileURL(`${runtime}/pyodide.asm.mjs`).href);
  let initial;
  const createPyodideModule = async (settings) => {
    const c = await create(settings);
    initial = c.HEAPU8.slice();
    return c;
  };
  const restored = await start({ _loadSnapshot: whole, createPyodideModule });
  return { initial, restored };
}

async function compress(...files) {
  const python = await start();
  for (const [at, name] of files.entries()) {
    console.log(`file ${at + 1} of ${files.length}: ${basename(name)}`);
    const file = await bytes(name);
    const smaller = zstandard(python, file, SMALLEST);
    if (smaller.length < WORTH * file.length) await writeFile(`${name}.zst`, smaller);
  }
}

function zstandard(python, file, level) {
  const compress = python.runPython("from compression.zstd import compress; lambda file, level: compress(file.to_bytes(), level)");
  return compress(file, level).toJs();
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
 * The head that Pyodide reads, and of the memory behind it the pages that a worker does not have yet: those that are neither
 * zero nor as the wasm file makes them. js/worker/snapshot.js describes the format, and reads it.
 */
function packed(whole, initial) {
  const head = new DataView(whole.buffer, whole.byteOffset).getUint32(WORD, true);
  const memory = whole.subarray(head);
  const ranges = [];
  for (let offset = 0; offset < memory.length; offset += PAGE) {
    const page = memory.subarray(offset, offset + PAGE);
    const kind = kindOf(page, initial.subarray(offset, offset + PAGE));
    const last = ranges.at(-1);
    if (last?.kind === kind && last.end === offset) last.end = offset + page.length;
    else if (kind !== undefined) ranges.push({ kind, offset, end: offset + page.length });
  }
  const initialRanges = ranges.filter(({ kind }) => kind === INITIAL);
  const sum = initialRanges.reduce((sum, { offset, end }) => checksum(memory.subarray(offset, end), sum), 0);
  const table = [head, memory.length, sum, ranges.length, ...ranges.flatMap(({ kind, offset, end }) => [kind, offset, end - offset])];
  const words = new DataView(new ArrayBuffer(WORD * table.length));
  table.forEach((value, index) => words.setInt32(WORD * index, value, true));
  const stored = ranges.filter(({ kind }) => kind === STORED).map(({ offset, end }) => memory.subarray(offset, end));
  return new Uint8Array(Buffer.concat([new Uint8Array(words.buffer), whole.subarray(0, head), ...stored]));
}

function kindOf(page, initial) {
  if (page.every((byte) => byte === 0)) return undefined;
  return Buffer.compare(page, initial) === 0 ? INITIAL : STORED;
}
