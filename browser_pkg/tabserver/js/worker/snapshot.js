/**
 * Reader of memory snapshots: the file that browser_pkg/runtime/bake.mjs writes, a memory without its zeroes.
 *
 * All numbers have 32 bits, little-endian: length of the memory, number of ranges, offset and length of each range; then the
 * bytes of the ranges. It does not check that the snapshot belongs to this build: boot.js does.
 */

const WORD = 4;

/**
 * @param {ArrayBuffer} file
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function expand(file) {
  const table = new DataView(file);
  const whole = new Uint8Array(table.getUint32(0, true));
  const count = table.getUint32(WORD, true);
  let start = WORD * (2 + 2 * count);
  for (let index = 0; index < count; index++) {
    const offset = table.getUint32(WORD * (2 + 2 * index), true);
    const length = table.getUint32(WORD * (3 + 2 * index), true);
    whole.set(new Uint8Array(file, start, length), offset);
    start += length;
  }
  if (start !== file.byteLength) throw new Error("the snapshot has another length than it says");
  return whole;
}
