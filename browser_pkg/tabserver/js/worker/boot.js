/**
 * Brings up Python in the worker: from a memory snapshot where the relay has one that fits, else from the files; and if that
 * does not work, whatever the reason, the way that Pyodide does it by itself. Snapshots are no public part of Pyodide: they
 * save time, and must never be needed.
 *
 * It knows nothing of what Python is wanted for.
 *
 * @import { BootMessage, Manifest, Pyodide, PyodideModule } from "../ports.js"
 */

import { Meter } from "./download_progress.js";
import { expand } from "./snapshot.js";

/** How long a start may stand still before the next way is tried, or given up. */
const PATIENCE_MS = 30_000;

const scope = /** @type {SharedWorkerGlobalScope} */ (/** @type {unknown} */ (self));

/**
 * @typedef {object} Way
 * @property {NonNullable<BootMessage["from"]>} from
 * @property {(attempt: Attempt, index: string) => Promise<Pyodide>} load
 */

/**
 * Try one way after the other until `use` has made something of Python. Returns what it made, and which way was taken;
 * `detail` is why the first one was not.
 * @template T
 * @param {string} relay
 * @param {(python: Pyodide, manifest: Manifest) => T} use
 * @param {(message: BootMessage) => void} tell
 * @param {number} [patience_ms]
 * @returns {Promise<{ made: T, from: Way["from"], detail?: string }>}
 */
export async function boot(relay, use, tell, patience_ms = PATIENCE_MS) {
  const manifest = await readManifest(relay, patience_ms);
  const attempt = (/** @type {Way} */ way, /** @type {boolean} */ isCounted) =>
    new Attempt(relay, manifest, tell, patience_ms, isCounted).run(way, use);
  const first = manifest.snapshot ? SNAPSHOT : FILES;
  try {
    return { made: await attempt(first, !isNear(relay)), from: first.from };
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
 * @param {number} patience_ms
 * @returns {Promise<Manifest>}
 */
async function readManifest(relay, patience_ms) {
  const url = new URL("/-/manifest.json", relay).href;
  const response = await fetch(url, { cache: "no-cache", signal: AbortSignal.timeout(patience_ms) });
  if (!response.ok) throw new Error(`Could not load ${url}: the relay answered ${response.status}.`);
  return response.json();
}

/**
 * On this very computer a download is over before anybody could watch it, and watching would take a tenth of the boot.
 * @param {string} relay
 */
function isNear(relay) {
  const { hostname } = new URL(relay);
  return hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" || /^127[.]/.test(hostname);
}

/**
 * @param {ArrayBuffer} file
 * @param {string} integrity
 */
async function check(file, integrity) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
  if (integrity !== `sha256-${btoa(String.fromCharCode(...digest))}`) throw new Error("The memory snapshot is damaged.");
}

/** One start of Python, with the browser's functions that it replaces meanwhile. */
class Attempt {
  manifest;
  meter;
  #relay;
  #tell;
  #isOver = false;

  /**
   * @param {string} relay
   * @param {Manifest} manifest
   * @param {(message: BootMessage) => void} tell
   * @param {number} patience_ms
   * @param {boolean} isCounted are the bytes of its downloads?
   */
  constructor(relay, manifest, tell, patience_ms, isCounted) {
    this.#relay = relay;
    this.#tell = tell;
    this.manifest = manifest;
    this.meter = new Meter(patience_ms, isCounted ? (loaded, total) => {
      tell({ t: "boot", stage: "download", loaded, ...(total ? { total } : {}) });
    } : undefined);
  }

  /**
   * @template T
   * @param {Way} way
   * @param {(python: Pyodide, manifest: Manifest) => T} use
   * @returns {Promise<T>}
   */
  async run(way, use) {
    const realFetch = scope.fetch;
    const realInstantiate = WebAssembly.instantiateStreaming;
    try {
      const index = this.address(this.manifest.pyodide);
      const python = await Promise.race([this.meter.failed, way.load(this, index)]);
      return use(python, this.manifest);
    } finally {
      this.#isOver = true;
      this.meter.stop();
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
    return (await this.meter.fetch(url)).arrayBuffer();
  }

  /**
   * If this fails, the attempt fails: at once, whatever it waits for.
   * @template T
   * @param {Promise<T>} promise
   */
  needs(promise) {
    promise.catch((error) => this.meter.fail(error)).catch(() => {});
    return promise;
  }

  /**
   * Let Pyodide fetch and instantiate by these. It logs a wasm that does not load and then waits for ever: here the attempt
   * fails. An attempt that was given up touches nothing any more, for the next one is under way.
   * @param {typeof fetch} get
   * @param {typeof WebAssembly.instantiateStreaming} instantiate
   */
  lend(get, instantiate) {
    if (this.#isOver) throw new Error("given up");
    scope.fetch = get;
    WebAssembly.instantiateStreaming = async (source, imports) => {
      const made = await instantiate(source, imports).catch((error) => this.meter.fail(error));
      if (this.#isOver) return new Promise(() => {});
      this.meter.arrived();
      this.#tell({ t: "boot", stage: "start" });
      return made;
    };
  }
}

/** @type {Way} */
const SNAPSHOT = {
  from: "snapshot",
  async load(attempt, index) {
    const { url, integrity } = /** @type {NonNullable<Manifest["snapshot"]>} */ (attempt.manifest.snapshot);
    const memory = attempt.bytes(attempt.address(url)).then(async (file) => {
      // Both at once: the browser computes the hash on another thread. (With `integrity` for fetch it would be this one.)
      const [whole] = await Promise.all([expand(file), check(file, integrity)]);
      return whole;
    });
    const python = await loadAtOnce(attempt, index, { _loadSnapshot: attempt.needs(memory) });
    setTimeZone(python);
    return python;
  },
};

/** @type {Way} */
const FILES = {
  from: "files",
  async load(attempt, index) {
    const archive = attempt.needs(attempt.bytes(attempt.address(attempt.manifest.tabserver)));
    const python = await loadAtOnce(attempt, index, {});
    python.unpackArchive(await archive, "zip");
    return python;
  },
};

/** By nothing but public options, with the library that Pyodide brings. @type {Way} */
const STOCK = {
  from: "stock",
  async load(attempt, index) {
    attempt.lend((input, init) => attempt.meter.fetch(input, init), WebAssembly.instantiateStreaming);
    const archive = attempt.needs(attempt.bytes(attempt.address(attempt.manifest.tabserver)));
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
async function loadAtOnce(attempt, index, more) {
  const wasm = `${index}pyodide.asm.wasm`;
  const compiled = attempt.needs(WebAssembly.compileStreaming(attempt.meter.fetch(wasm)));
  const names = ["python_stdlib.zip", "pyodide-lock.json"];
  /** @type {Map<string, Promise<Response>>} */
  const coming = new Map(names.map((name) => [index + name, attempt.needs(attempt.meter.fetch(index + name))]));
  coming.set(wasm, new Promise(() => {})); // asked for once more, and not waited for
  const [{ default: createPyodideModule }, { loadPyodide }] = /** @type {[{ default: Create }, PyodideModule]} */ (
    await Promise.all([import(`${index}pyodide.asm.mjs`), import(`${index}pyodide.mjs`)])
  );
  attempt.lend(
    (input, init) => coming.get(String(input)) ?? attempt.meter.fetch(input, init),
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
