/**
 * Python's standard library as a file that is downloaded when Python reads it for the first time.
 *
 * A memory snapshot contains the modules that were imported and the table of contents of the library's archive, so a worker
 * reads the archive only when a tool imports another module. `import` is synchronous: the download blocks the worker, which is
 * acceptable for a relay on this computer. For others boot.js downloads the archive in advance.
 */

const EIO = 29;
const TIMEOUT_MS = 30_000;

/**
 * Replace the empty file that Pyodide has written.
 * @param {any} c Emscripten's module
 * @param {number} size of the archive in bytes
 * @param {() => Uint8Array} load
 */
export function installLibrary(c, size, load) {
  const [major, minor] = c.API.pyVersionTuple;
  const { node } = c.FS.lookupPath(`/lib/python${major}${minor}.zip`);
  /** @type {Uint8Array | undefined} */
  let contents;
  Object.defineProperty(node, "contents", {
    configurable: true,
    get() {
      try {
        contents ??= load();
      } catch (error) {
        console.error("tabrelay: Python's library could not be loaded; an import fails [TR478]", error);
        throw new c.FS.ErrnoError(EIO);
      }
      return contents;
    },
    set(value) {
      contents = value;
    },
  });
  node.usedBytes = size;
}

/**
 * @param {string} url
 * @param {number} size
 */
export function downloadNow(url, size) {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.responseType = "arraybuffer";
  request.timeout = TIMEOUT_MS;
  request.send();
  if (request.status !== 200) throw new Error(`Could not load ${url}: the relay answered ${request.status}.`);
  return checkedSize(request.response, size);
}

/**
 * The table of contents in the snapshot has offsets into an archive of this size.
 * @param {ArrayBuffer} archive
 * @param {number} size
 */
export function checkedSize(archive, size) {
  if (archive.byteLength !== size) throw new Error("Python's library has another size than the one of the snapshot.");
  return new Uint8Array(archive);
}
