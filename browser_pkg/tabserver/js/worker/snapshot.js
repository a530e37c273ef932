/**
 * Reader of memory snapshots: the file that browser_pkg/runtime/bake.mjs writes, a memory without what a worker has anyway.
 *
 * All numbers have 32 bits, little-endian: length of the head that Pyodide reads, length of the memory, checksum, number of
 * ranges, and kind, offset and length of each range; then the head and the bytes of the stored ranges. An initial range is not
 * stored: the wasm file has just put its bytes there, and their checksum is compared. What is in no range is zero. Ranges are
 * copied directly to where they belong: a copy of the whole memory would double what a worker takes. It does not check that the
 * snapshot belongs to this build: boot.js does.
 */

export const WORD = 4;
export const STORED = 0;
export const INITIAL = 1;

/** @param {ArrayBuffer} file */
function contents(file) {
  const table = new DataView(file);
  const word = (/** @type {number} */ index) => table.getUint32(WORD * index, true);
  const count = word(3);
  const start = WORD * (4 + 3 * count);
  const ranges = Array.from({ length: count }, (_, index) => {
    const at = 4 + 3 * index;
    return { isStored: word(at) === STORED, offset: word(at + 1), length: word(at + 2) };
  });
  const stored = ranges.reduce((sum, { isStored, length }) => sum + (isStored ? length : 0), word(0));
  if (start + stored !== file.byteLength) throw new Error("the snapshot has another length than it says");
  return { head: new Uint8Array(file, start, word(0)), length: word(1), sum: table.getInt32(2 * WORD, true), ranges };
}

/**
 * What Pyodide reads of a snapshot: the identity of its build and the JavaScript objects that Python knows.
 * @param {ArrayBuffer} file
 */
export function readHead(file) {
  return contents(file).head.slice();
}

/**
 * Give a memory that was just created the content of the snapshot.
 * @param {ArrayBuffer} file
 * @param {Uint8Array<ArrayBuffer>} memory
 */
export function restore(file, memory) {
  const { head, length, sum, ranges } = contents(file);
  if (length !== memory.length) throw new Error("the snapshot is of another memory");
  let from = head.byteOffset + head.length;
  let end = 0; // of the range before
  let found = 0;
  for (const { isStored, offset, length } of ranges) {
    clear(memory, end, offset);
    end = offset + length;
    if (isStored) {
      memory.set(new Uint8Array(file, from, length), offset);
      from += length;
    } else {
      found = checksum(memory.subarray(offset, end), found);
    }
  }
  clear(memory, end, memory.length);
  if (found !== sum) throw new Error("the snapshot does not fit the memory that the wasm file makes");
}

/**
 * Detects another build of the wasm file, not an attack.
 * @param {Uint8Array} bytes
 * @param {number} sum of the ranges before
 */
export function checksum(bytes, sum) {
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / WORD);
  for (let index = 0; index < words.length; index++) sum = (Math.imul(sum, 31) + /** @type {number} */ (words[index])) | 0;
  return sum;
}

/**
 * Only words that are not zero yet are written: a page that was never written takes no memory.
 * @param {Uint8Array<ArrayBuffer>} memory
 * @param {number} from
 * @param {number} to
 */
function clear(memory, from, to) {
  const words = new Int32Array(memory.buffer, memory.byteOffset + from, (to - from) / WORD);
  for (let index = 0; index < words.length; index++) {
    if (words[index] !== 0) words[index] = 0;
  }
}
