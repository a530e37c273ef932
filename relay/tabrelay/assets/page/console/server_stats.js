/**
 * Figures of each server from the calls that the console has: calls, errors, quantiles, last call, and calls over the last minutes.
 *
 * Computed from all rows at once, at most once for each drawing. Streams that stay open count as calls, but not in durations.
 */

import { isError } from "./rows.js";

/**
 * @typedef {import("./rows.js").Row} Row
 * @typedef {{ calls: number, errors: number, p50: number | null, p95: number | null, last: number | null, bins: number[], badBins: number[] }} ServerStats
 */

export const BINS = 30;
const BIN_MS = 10_000;

/**
 * @param {readonly Row[]} rows
 * @param {number} now
 * @returns {Map<string, ServerStats>}
 */
export function statsOf(rows, now) {
  /** @type {Map<string, ServerStats & { durations: number[] }>} */
  const found = new Map();
  for (const row of rows) {
    let stats = found.get(row.server);
    if (!stats) {
      stats = { calls: 0, errors: 0, p50: null, p95: null, last: null, bins: Array(BINS).fill(0), badBins: Array(BINS).fill(0), durations: [] };
      found.set(row.server, stats);
    }
    stats.calls++;
    stats.last = Math.max(stats.last ?? 0, row.started);
    if (isError(row)) stats.errors++;
    if (row.ms !== null && row.kind !== "listen") stats.durations.push(row.ms);
    const bin = BINS - 1 - Math.floor((now - row.started) / BIN_MS);
    if (bin < 0 || bin >= BINS) continue;
    stats.bins[bin] = (stats.bins[bin] ?? 0) + 1;
    if (isError(row)) stats.badBins[bin] = (stats.badBins[bin] ?? 0) + 1;
  }
  for (const stats of found.values()) {
    const sorted = stats.durations.sort((a, b) => a - b);
    if (!sorted.length) continue;
    stats.p50 = quantile(sorted, 0.5);
    stats.p95 = quantile(sorted, 0.95);
  }
  return found;
}

/**
 * @param {readonly number[]} sorted
 * @param {number} share 0 to 1
 */
export function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))] ?? 0;
}
