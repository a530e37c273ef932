/**
 * Calls that the console shows: the latest state of each row, in the order of their start, at most `MAX_ROWS`.
 *
 * The oldest rows are removed first. Changes are reported as one "change" event for each turn of the page's timers, so that 1,000
 * rows of one batch are drawn once. It requests nothing and draws nothing.
 */

/** @typedef {import("./rows.js").Row} Row */

const MAX_ROWS = 10_000;
/** The start of a line of the call log is its end minus its duration, so it is a little off. */
const CLOCK_MS = 20;

export class CallStore extends EventTarget {
  /** @type {Map<string, Row>} */
  #byId = new Map();
  /** In the order of their start. @type {Row[]} */
  #rows = [];
  /** @type {Map<string, number>} */
  #totals = new Map();
  #isReported = true;
  #most;

  /** @param {number} [most] rows */
  constructor(most = MAX_ROWS) {
    super();
    this.#most = most;
  }

  get size() {
    return this.#rows.length;
  }

  /** How many rows of a server were taken so far; it only rises. @param {string} server */
  total(server) {
    return this.#totals.get(server) ?? 0;
  }

  /** The oldest first. @returns {readonly Row[]} */
  get rows() {
    return this.#rows;
  }

  /** @param {string} id */
  find(id) {
    return this.#byId.get(id);
  }

  /** New rows, or new states of known rows. @param {readonly Row[]} rows */
  take(rows) {
    for (const row of rows) {
      const known = this.#byId.get(row.id);
      if (known) Object.assign(known, row);
      else this.#insert({ ...row });
    }
    this.#dropKnownLines();
    this.#trim();
    if (rows.length) this.#report();
  }

  /** Of the call log, only lines of before the first captured call are shown: the others are calls that were captured. */
  #dropKnownLines() {
    const first = this.#rows.find(({ is_log }) => !is_log)?.started ?? Infinity;
    const isKnown = (/** @type {Row} */ row) => Boolean(row.is_log) && row.started > first - CLOCK_MS;
    if (!this.#rows.some(isKnown)) return;
    for (const row of this.#rows) if (isKnown(row)) this.#byId.delete(row.id);
    this.#rows = this.#rows.filter((row) => !isKnown(row));
  }

  clear() {
    this.#byId.clear();
    this.#rows = [];
    this.#report();
  }

  /** @param {Row} row */
  #insert(row) {
    this.#byId.set(row.id, row);
    if (!row.is_log) this.#totals.set(row.server, this.total(row.server) + 1);
    let at = this.#rows.length;
    while (at > 0 && (this.#rows[at - 1]?.started ?? 0) > row.started) at--;
    if (at === this.#rows.length) this.#rows.push(row);
    else this.#rows.splice(at, 0, row);
  }

  #trim() {
    const excess = this.#rows.length - this.#most;
    // In steps, since removing from the beginning moves all rows.
    if (excess <= 0) return;
    for (const row of this.#rows.splice(0, excess)) this.#byId.delete(row.id);
  }

  #report() {
    if (!this.#isReported) return;
    this.#isReported = false;
    setTimeout(() => {
      this.#isReported = true;
      this.dispatchEvent(new Event("change"));
    });
  }
}
