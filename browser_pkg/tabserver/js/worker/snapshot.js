/**
 * Reads the file that browser_pkg/runtime/bake.mjs writes: a memory without its zeroes.
 * All numbers are 32 bits, least byte first: length of the whole, number of stretches, for each its offset and its length;
 * then the stretches, one after the other. Whether the file is the right one is not looked at here.
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
