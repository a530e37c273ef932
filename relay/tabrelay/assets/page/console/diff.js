/**
 * Difference of two texts by lines, and of two lists of tools by name. Pure functions.
 *
 * Myers' algorithm over lines, with a bound on the number of differences; beyond it all lines are shown as removed and added.
 */

const MAX_DIFFERENCES = 1500;

/** @typedef {{ kind: "same" | "added" | "removed", text: string }} DiffLine */

/**
 * @param {string} before
 * @param {string} after
 * @returns {DiffLine[]}
 */
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (/** @type {string[]} */ lines) => lines.map((text) => /** @type {DiffLine} */ ({ kind: "same", text }));
  return [...same(a.slice(0, head)), ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)), ...same(a.slice(a.length - tail))];
}

/**
 * @param {string[]} a
 * @param {string[]} b
 * @returns {DiffLine[]}
 */
function middle(a, b) {
  const trace = search(a, b);
  if (!trace) {
    return [...a.map((text) => /** @type {DiffLine} */ ({ kind: "removed", text })), ...b.map((text) => /** @type {DiffLine} */ ({ kind: "added", text }))];
  }
  /** @type {DiffLine[]} */
  const lines = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const v = trace[d] ?? new Map();
    const k = x - y;
    const down = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1));
    const before = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : (v.get(before) ?? 0);
    const fromY = d === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY && x > 0 && y > 0 && a[x - 1] === b[y - 1]) {
      lines.push({ kind: "same", text: a[--x] ?? "" });
      y--;
    }
    if (d === 0) break;
    if (down) lines.push({ kind: "added", text: b[--y] ?? "" });
    else lines.push({ kind: "removed", text: a[--x] ?? "" });
  }
  return lines.reverse();
}

/**
 * The furthest points of each number of differences; null with too many.
 *
 * @param {string[]} a
 * @param {string[]} b
 * @returns {Map<number, number>[] | null}
 */
function search(a, b) {
  /** @type {Map<number, number>[]} */
  const trace = [];
  /** @type {Map<number, number>} */
  const v = new Map([[1, 0]]);
  for (let d = 0; d <= Math.min(MAX_DIFFERENCES, a.length + b.length); d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1));
      let x = down ? (v.get(k + 1) ?? 0) : (v.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      v.set(k, x);
      if (x >= a.length && y >= b.length) return trace;
    }
  }
  return null;
}

/** A value as text whose lines can be compared: members in the order of their names. @param {unknown} value */
export function stableText(value) {
  return JSON.stringify(sorted(value), null, 2) ?? "";
}

/** @param {unknown} value @returns {unknown} */
function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, sorted(inner)]));
}

/**
 * @template {{ name: string }} Named
 * @param {readonly Named[]} before
 * @param {readonly Named[]} after
 * @returns {{ name: string, kind: "added" | "removed" | "changed", lines: DiffLine[] }[]}
 */
export function diffTools(before, after) {
  const old = new Map(before.map((tool) => [tool.name, stableText(tool)]));
  const now = new Map(after.map((tool) => [tool.name, stableText(tool)]));
  const names = [...new Set([...old.keys(), ...now.keys()])];
  return names.flatMap((name) => {
    const [a, b] = [old.get(name), now.get(name)];
    if (a === b) return [];
    const kind = a === undefined ? "added" : b === undefined ? "removed" : "changed";
    return [{ name, kind: /** @type {"added" | "removed" | "changed"} */ (kind), lines: diffLines(a ?? "", b ?? "") }];
  });
}
