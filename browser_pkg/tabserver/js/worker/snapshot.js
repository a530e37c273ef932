/**
 * Reader of memory snapshots: the file that browser_pkg/runtime/bake.mjs writes, a memory without its zeroes.
 *
 * All numbers have 32 bits, little-endian: length of the whole, number of ranges, offset and length of each range; then the
 * bytes of the ranges. The first range is the head that Pyodide reads, the others are pages of the memory behind it. Pages are
 * copied directly to where they belong: a copy of the whole memory, zeroes included, would double what a worker takes. It does
 * not check that the snapshot belongs to this build: boot.js does.
 */

const WORD = 4;

/**
 * @param {ArrayBuffer} file
 * @returns {Generator<{ offset: number, bytes: Uint8Array<ArrayBuffer> }>}
 */
function* ranges(file) {
  const table = new DataView(file);
  const count = table.getUint32(WORD, true);
  let start = WORD * (2 + 2 * count);
  for (let index = 0; index < count; index++) {
    const offset = table.getUint32(WORD * (2 + 2 * index), true);
    const length = table.getUint32(WORD * (3 + 2 * index), true);
    yield { offset, bytes: new Uint8Array(file, start, length) };
    start += length;
  }
  if (start !== file.byteLength) throw new Error("the snapshot has another length than it says");
}

/**
 * What Pyodide reads of a snapshot: the identity of its build and the JavaScript objects that Python knows.
 * @param {ArrayBuffer} file
 */
export function readHead(file) {
  const { value } = ranges(file).next();
  if (!value || value.offset !== 0) throw new Error("the snapshot has no head");
  return value.bytes.slice();
}

/**
 * Give a memory that was just created the content of the snapshot.
 * @param {ArrayBuffer} file
 * @param {Uint8Array<ArrayBuffer>} memory
 */
export function restore(file, memory) {
  let head = 0;
  let end = 0; // of the range before
  for (const { offset, bytes } of ranges(file)) {
    if (offset === 0) {
      head = bytes.length;
      continue;
    }
    clear(memory, end, offset - head);
    memory.set(bytes, offset - head);
    end = offset - head + bytes.length;
  }
  if (new DataView(file).getUint32(0, true) !== head + memory.length) throw new Error("the snapshot is of another memory");
  clear(memory, end, memory.length);
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
