/**
 * Boot of Python (Pyodide) in the worker.
 *
 * It loads a memory snapshot where the relay has a matching one, otherwise the files in parallel. If that fails for any reason,
 * Pyodide loads itself by public options only: snapshots are not a public part of Pyodide, so they may save time but must never
 * be required. It does not know what Python runs afterwards.
 *
 * @import { BootMessage, Manifest, Pyodide, PyodideModule } from "../ports.js"
 */

import { DownloadProgress } from "./download_progress.js";
import { checkedSize, downloadNow, installLibrary } from "./lazy_library.js";
import { readHead, restore } from "./snapshot.js";

/** A boot without progress for this long has failed: the next method is tried, if there is one. */
const STALL_MS = 30_000;

const LIBRARY = "python_stdlib.zip";

const scope = /** @type {SharedWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/**
 * @typedef {object} BootMethod
 * @property {NonNullable<BootMessage["from"]>} from
 * @property {(attempt: Attempt, index: string) => Promise<Pyodide>} load
 */

/**
 * Try one method after the other until `use` returns. Returns its value, and which method worked; `detail` is the error of the
 * first one, if that failed.
 * @template T
 * @param {string} relay
 * @param {(python: Pyodide, manifest: Manifest) => T} use
 * @param {(message: BootMessage) => void} report
 * @param {number} [stall_ms]
 * @returns {Promise<{ made: T, from: BootMethod["from"], detail?: string }>}
 */
export async function boot(relay, use, report, stall_ms = STALL_MS) {
  const manifest = await readManifest(relay, stall_ms);
  const attempt = (/** @type {BootMethod} */ method, /** @type {boolean} */ isCounted) =>
    new Attempt(relay, manifest, report, stall_ms, isCounted).run(method, use);
  const first = manifest.snapshot ? SNAPSHOT : FILES;
  try {
    return { made: await attempt(first, !isRelayLocal(relay)), from: first.from };
  } catch (error) {
    console.warn(`tabrelay worker: Python did not start from ${first.from}; starting it with Pyodide's own loader, which is slower [TR479]`, error);
    // Bytes are counted even on loopback: a tunnel may lead to a distant relay, and a slow download is not a stall.
    return { made: await attempt(STOCK, true), from: STOCK.from, detail: lastLine(error) };
  }
}

/**
 * The last line of a Python traceback, which has the error; the console has the rest.
 * @param {unknown} error
 */
export function lastLine(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.trim().split("\n").at(-1) ?? "";
}

/**
 * @param {string} relay
 * @param {number} stall_ms
 * @returns {Promise<Manifest>}
 */
async function readManifest(relay, stall_ms) {
  const url = new URL("/-/manifest.json", relay).href;
  const response = await fetch(url, { cache: "no-cache", signal: AbortSignal.timeout(stall_ms) });
  if (!response.ok) throw new Error(`Could not load ${url}: the relay answered ${response.status}.`);
  return response.json();
}

/**
 * On this computer a download takes no visible time, and counting its bytes would take a tenth of the boot.
 * @param {string} relay
 */
function isRelayLocal(relay) {
  const { hostname } = new URL(relay);
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" || /^127[.]/.test(hostname);
}

/**
 * @param {ArrayBuffer} file
 * @param {string} integrity
 */
async function checkDigest(file, integrity) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  if (integrity !== `sha256-${btoa(String.fromCharCode(...digest))}`) throw new Error("The memory snapshot is damaged.");
}

/**
 * Free the memory of a buffer now: the next garbage collection may be minutes away. Chromium keeps the memory after
 * `buffer.transfer(0)`, but not after it was sent to a port that is closed.
 * @param {ArrayBuffer} buffer
 */
function release(buffer) {
  const { port1, port2 } = new MessageChannel();
  port2.close();
  port1.postMessage(null, [buffer]);
  port1.close();
}

/** One attempt to start Python. It replaces `fetch` and `instantiateStreaming` meanwhile. */
class Attempt {
  manifest;
  progress;
  #relay;
  #report;
  #isOver = false;

  /**
   * @param {string} relay
   * @param {Manifest} manifest
   * @param {(message: BootMessage) => void} report
   * @param {number} stall_ms
   * @param {boolean} isCounted whether the bytes of its downloads are counted
   */
  constructor(relay, manifest, report, stall_ms, isCounted) {
    this.#relay = relay;
    this.#report = report;
    this.manifest = manifest;
    this.progress = new DownloadProgress(stall_ms, isCounted ? (loaded, total) => {
      report({ t: "boot", stage: "download", loaded, ...(total ? { total } : {}) });
    } : undefined);
  }

  /**
   * @template T
   * @param {BootMethod} method
   * @param {(python: Pyodide, manifest: Manifest) => T} use
   * @returns {Promise<T>}
   */
  async run(method, use) {
    const realFetch = scope.fetch;
    const realInstantiate = WebAssembly.instantiateStreaming;
    try {
      const index = this.address(this.manifest.pyodide);
      const python = await Promise.race([this.progress.failed, method.load(this, index)]);
      return use(python, this.manifest);
    } finally {
      this.#isOver = true;
      this.progress.stop();
      scope.fetch = realFetch;
      WebAssembly.instantiateStreaming = realInstantiate;
    }
  }

  get isRelayLocal() {
    return isRelayLocal(this.#relay);
  }

  /** @param {string} path */
  address(path) {
    return new URL(path, this.#relay).href;
  }

  /**
   * @param {string} url
   * @param {RequestInit} [init]
   */
  async bytes(url, init) {
    return (await this.progress.fetch(url, init)).arrayBuffer();
  }

  /**
   * If this promise rejects, the attempt fails immediately, whatever it awaits.
   * @template T
   * @param {Promise<T>} promise
   */
  mustSucceed(promise) {
    promise.catch((error) => this.progress.fail(error)).catch(() => {});
    return promise;
  }

  /**
   * Make Pyodide use these functions. Pyodide logs a wasm that does not load and then waits without a limit: here the attempt
   * fails instead. An attempt that has ended must change nothing, because the next one is running.
   * @param {typeof fetch} get
   * @param {typeof WebAssembly.instantiateStreaming} instantiate
   */
  replaceLoaders(get, instantiate) {
    if (this.#isOver) throw new Error("given up");
    scope.fetch = get;
    WebAssembly.instantiateStreaming = async (source, imports) => {
      const made = await instantiate(source, imports).catch((error) => this.progress.fail(error));
      if (this.#isOver) return new Promise(() => {});
      this.progress.arrived();
      this.#report({ t: "boot", stage: "start" });
      return made;
    };
  }
}

/** @type {BootMethod} */
const SNAPSHOT = {
  from: "snapshot",
  async load(attempt, index) {
    const { url, integrity, library_bytes } = /** @type {NonNullable<Manifest["snapshot"]>} */ (attempt.manifest.snapshot);
    // A sandboxed frame is no secure context and has no SubtleCrypto. There fetch compares the hash.
    const isSecure = scope.isSecureContext;
    const file = attempt.mustSucceed(attempt.bytes(attempt.address(url), isSecure ? undefined : { integrity }));
    // In parallel: the browser computes the hash on another thread. (`integrity` of fetch would compute it on this one.)
    const checked = isSecure ? attempt.mustSucceed(file.then((bytes) => checkDigest(bytes, integrity))) : file;
    const archive = attempt.isRelayLocal
      ? undefined
      : attempt.mustSucceed(attempt.bytes(index + LIBRARY).then((bytes) => checkedSize(bytes, library_bytes)));
    const python = await loadInParallel(attempt, index, {
      head: attempt.mustSucceed(file.then(readHead)),
      async restore(c) {
        await checked;
        const bytes = await file;
        restore(bytes, c.HEAPU8);
        release(bytes);
      },
    });
    const early = await archive;
    installLibrary(python._module, library_bytes, () => early ?? downloadNow(index + LIBRARY, library_bytes));
    setTimeZone(python);
    return python;
  },
};

/** @type {BootMethod} */
const FILES = {
  from: "files",
  async load(attempt, index) {
    const archive = attempt.mustSucceed(attempt.bytes(attempt.address(attempt.manifest.tabserver)));
    const python = await loadInParallel(attempt, index);
    python.unpackArchive(await archive, "zip");
    return python;
  },
};

/** With public options only, and the standard library of Pyodide. @type {BootMethod} */
const STOCK = {
  from: "stock",
  async load(attempt, index) {
    attempt.replaceLoaders((input, init) => attempt.progress.fetch(input, init), WebAssembly.instantiateStreaming);
    const archive = attempt.mustSucceed(attempt.bytes(attempt.address(attempt.manifest.tabserver)));
    const { loadPyodide } = /** @type {PyodideModule} */ (await import(`${index}pyodide.mjs`));
    const python = await loadPyodide({ indexURL: index, stdLibURL: `${index}python_stdlib_source.zip` });
    python.unpackArchive(await archive, "zip");
    return python;
  },
};

/**
 * The C library reads the time zone once, which was when the snapshot was made. tabserver.worker.snapshot_reset does the rest.
 * @param {Pyodide} python
 */
function setTimeZone({ _module: c }) {
  const names = c._tzname / Uint32Array.BYTES_PER_ELEMENT;
  c.__tzset_js(c._timezone, c._daylight, c.HEAPU32[names], c.HEAPU32[names + 1]);
}

/** @typedef {(settings: unknown) => Promise<Pyodide["_module"]>} Create */

/**
 * Pyodide fetches one file after the other. Here all downloads start together, and the wasm is compiled while it arrives.
 * @param {Attempt} attempt
 * @param {string} index
 * @param {{ head: Promise<Uint8Array>, restore: (c: Pyodide["_module"]) => Promise<void> }} [snapshot] without one, Python
 *   reads its library while it starts
 */
async function loadInParallel(attempt, index, snapshot) {
  const wasm = `${index}pyodide.asm.wasm`;
  const compiled = attempt.mustSucceed(WebAssembly.compileStreaming(attempt.progress.fetch(wasm)));
  const names = ["pyodide-lock.json", ...(snapshot ? [] : [LIBRARY])];
  /** @type {Map<string, Promise<Response>>} */
  const downloads = new Map(names.map((name) => [index + name, attempt.mustSucceed(attempt.progress.fetch(index + name))]));
  if (snapshot) downloads.set(index + LIBRARY, Promise.resolve(new Response(new Uint8Array())));
  downloads.set(wasm, new Promise(() => {})); // Pyodide requests it too, and does not await it
  const [{ default: createPyodideModule }, { loadPyodide }] = /** @type {[{ default: Create }, PyodideModule]} */ (
    await Promise.all([import(`${index}pyodide.asm.mjs`), import(`${index}pyodide.mjs`)])
  );
  attempt.replaceLoaders(
    (input, init) => downloads.get(String(input)) ?? attempt.progress.fetch(input, init),
    async (_, imports) => {
      const module = await compiled;
      return { module, instance: await WebAssembly.instantiate(module, imports) };
    },
  );
  let trampoline = 0;
  const python = await loadPyodide({
    indexURL: index,
    createPyodideModule: async (/** @type {unknown} */ settings) => {
      const c = await createPyodideModule(settings);
      trampoline = c.HEAPU32[trampolineAt(c)];
      await snapshot?.restore(c);
      return c;
    },
    // Pyodide reads the head, and finds no memory behind it that it would have to copy.
    ...(snapshot ? { _loadSnapshot: snapshot.head } : {}),
  });
  // A snapshot contains the value of the engine that made it, which had no trampoline.
  python._module.HEAPU32[trampolineAt(python._module)] = trampoline;
  return python;
}

/**
 * Where Python stores its trampoline, which calls a C function that may take fewer arguments than it gets: a small WebAssembly
 * function that this engine made at its start, or 0 for a call through JavaScript, which is slower.
 * @param {Pyodide["_module"]} c
 */
function trampolineAt(c) {
  const bytes = c.__PyRuntime + c.HEAPU32[c.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET / Uint32Array.BYTES_PER_ELEMENT];
  return bytes / Uint32Array.BYTES_PER_ELEMENT;
}
