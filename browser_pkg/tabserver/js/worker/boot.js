/**
 * Brings up Python in the worker: from a memory snapshot where the relay has one that fits, else from the files; and if that
 * does not work, whatever the reason, the way that Pyodide does it by itself. Snapshots are no public part of Pyodide: they
 * save time, and must never be needed.
 *
 * It knows nothing of what Python is wanted for.
 *
 * @import { BootMessage, Manifest, Pyodide, PyodideModule } from "../ports.js"
 */

import { DownloadProgress } from "./download_progress.js";
import { expand } from "./snapshot.js";

/** How long a start may stand still before the next way is tried, or given up. */
const STALL_MS = 30_000;

const scope = /** @type {SharedWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/**
 * @typedef {object} BootMethod
 * @property {NonNullable<BootMessage["from"]>} from
 * @property {(attempt: Attempt, index: string) => Promise<Pyodide>} load
 */

/**
 * Try one way after the other until `use` has made something of Python. Returns what it made, and which way was taken;
 * `detail` is why the first one was not.
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
    console.warn(`tabrelay: Python did not start from ${first.from}; starting it the slow way`, error);
    // Counted, however near: the relay may be at the far end of a tunnel, where slow must not look like stuck.
    return { made: await attempt(STOCK, true), from: STOCK.from, detail: lastLine(error) };
  }
}

/**
 * Of a Python traceback the last line says what happened; the console has the rest.
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
 * On this very computer a download is over before anybody could watch it, and watching would take a tenth of the boot.
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

/** One start of Python, with the browser's functions that it replaces meanwhile. */
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
   * @param {boolean} isCounted are the bytes of its downloads?
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

  /** @param {string} path */
  address(path) {
    return new URL(path, this.#relay).href;
  }

  /** @param {string} url */
  async bytes(url) {
    return (await this.progress.fetch(url)).arrayBuffer();
  }

  /**
   * If this fails, the attempt fails: at once, whatever it waits for.
   * @template T
   * @param {Promise<T>} promise
   */
  mustSucceed(promise) {
    promise.catch((error) => this.progress.fail(error)).catch(() => {});
    return promise;
  }

  /**
   * Let Pyodide fetch and instantiate by these. It logs a wasm that does not load and then waits for ever: here the attempt
   * fails. An attempt that was given up touches nothing any more, for the next one is under way.
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
    const { url, integrity } = /** @type {NonNullable<Manifest["snapshot"]>} */ (attempt.manifest.snapshot);
    const memory = attempt.bytes(attempt.address(url)).then(async (file) => {
      // Both at once: the browser computes the hash on another thread. (With `integrity` for fetch it would be this one.)
      const [whole] = await Promise.all([expand(file), checkDigest(file, integrity)]);
      return whole;
    });
    const python = await loadInParallel(attempt, index, { _loadSnapshot: attempt.mustSucceed(memory) });
    setTimeZone(python);
    return python;
  },
};

/** @type {BootMethod} */
const FILES = {
  from: "files",
  async load(attempt, index) {
    const archive = attempt.mustSucceed(attempt.bytes(attempt.address(attempt.manifest.tabserver)));
    const python = await loadInParallel(attempt, index, {});
    python.unpackArchive(await archive, "zip");
    return python;
  },
};

/** By nothing but public options, with the library that Pyodide brings. @type {BootMethod} */
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
 * The C library looks at the time zone once, and did so when the snapshot was made. tabserver.worker.snapshot_reset does the rest.
 * @param {Pyodide} python
 */
function setTimeZone({ _module: c }) {
  const names = c._tzname / Uint32Array.BYTES_PER_ELEMENT;
  c.__tzset_js(c._timezone, c._daylight, c.HEAPU32[names], c.HEAPU32[names + 1]);
}

/** @typedef {(settings: unknown) => Promise<Pyodide["_module"]>} Create */

/**
 * Pyodide asks for one thing after the other. Here everything sets out at once, and the wasm is compiled while it comes in.
 * @param {Attempt} attempt
 * @param {string} index
 * @param {{ _loadSnapshot?: Promise<Uint8Array> }} more
 */
async function loadInParallel(attempt, index, more) {
  const wasm = `${index}pyodide.asm.wasm`;
  const compiled = attempt.mustSucceed(WebAssembly.compileStreaming(attempt.progress.fetch(wasm)));
  const names = ["python_stdlib.zip", "pyodide-lock.json"];
  /** @type {Map<string, Promise<Response>>} */
  const downloads = new Map(names.map((name) => [index + name, attempt.mustSucceed(attempt.progress.fetch(index + name))]));
  downloads.set(wasm, new Promise(() => {})); // asked for once more, and not waited for
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
      return c;
    },
    ...more,
  });
  // The one in a snapshot is that of the engine it was made with, which had none.
  python._module.HEAPU32[trampolineAt(python._module)] = trampoline;
  return python;
}

/**
 * Where Python keeps how it calls a C function that may take fewer arguments than it is given: by a little WebAssembly that
 * this engine made when it started or, for want of that, by way of JavaScript, which is slower.
 * @param {Pyodide["_module"]} c
 */
function trampolineAt(c) {
  const bytes = c.__PyRuntime + c.HEAPU32[c.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET / Uint32Array.BYTES_PER_ELEMENT];
  return bytes / Uint32Array.BYTES_PER_ELEMENT;
}
