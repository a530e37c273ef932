/**
 * Download progress of a boot: counts bytes, and detects a failed download and a stall.
 *
 * The timeout counts from the last progress, so a slow network is not a failure. It only reports: boot.js decides what to do.
 */

const REPORT_EVERY_MS = 100;
/** How many times larger a compressed file of Python is when it is read: about. */
const COMPRESSION = 3;

export class DownloadProgress {
  /** Rejects when the boot can't succeed; never resolves. @type {Promise<never>} */
  failed;

  #stall_ms;
  #report;
  #fetch = self.fetch.bind(self);
  #loaded = 0;
  #total = 0;
  #isTotalKnown = true;
  #reportedAt = 0;
  #isDownloading = true;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {(error: Error) => void} */
  #reject = () => {};

  /**
   * @param {number} stall_ms
   * @param {(loaded: number, total: number | undefined) => void} [report] without it, bytes are not counted, which saves time
   */
  constructor(stall_ms, report) {
    this.#stall_ms = stall_ms;
    this.#report = report;
    this.failed = new Promise((_, reject) => {
      this.#reject = reject;
    });
    this.#rearm();
  }

  /** All downloads are complete: report no more progress. The timeout continues until `stop`. */
  arrived() {
    this.#isDownloading = false;
    this.#rearm();
  }

  stop() {
    this.#isDownloading = false;
    clearTimeout(this.#timer);
  }

  /**
   * @param {Error} error
   * @returns {never}
   */
  fail(error) {
    this.#reject(error);
    throw error;
  }

  /**
   * Fetch, and count bytes while the response is read. The bytes of a clone are counted, so that the caller gets the original
   * response: browsers cache compiled wasm only for a response that came from the network.
   * @param {RequestInfo | URL} input
   * @param {RequestInit} [init]
   */
  async fetch(input, init) {
    const url = input instanceof Request ? input.url : String(input);
    const response = await this.#fetch(input, init).catch((error) =>
      this.fail(new Error(`Could not load ${url}: ${error.message}`)),
    );
    if (!response.ok) this.fail(new Error(`Could not load ${url}: the relay answered ${response.status}.`));
    this.#rearm();
    const reader = this.#report && response.clone().body?.getReader();
    if (reader) this.#count(reader, response.headers).catch((error) => this.#reject(error));
    return response;
  }

  /**
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {Headers} headers
   */
  async #count(reader, headers) {
    const length = Number(headers.get("content-length"));
    if (!length) this.#isTotalKnown = false;
    this.#total += length;
    // The Content-Length of a compressed response is that of the download; what is read is larger. So its progress is an estimate.
    const ratio = headers.get("content-encoding") ? COMPRESSION : 1;
    let counted = 0;
    for (;;) {
      const { done, value } = await reader.read();
      const before = counted;
      if (length) counted = done ? length : Math.min(counted + value.byteLength / ratio, length);
      else counted += value?.byteLength ?? 0;
      this.#loaded += counted - before;
      if (done) return;
      if (!this.#isDownloading) continue;
      this.#rearm();
      this.#reportProgress();
    }
  }

  #reportProgress() {
    const now = performance.now();
    if (now - this.#reportedAt < REPORT_EVERY_MS) return;
    this.#reportedAt = now;
    const isTotalKnown = this.#isTotalKnown && this.#loaded <= this.#total;
    this.#report?.(Math.round(this.#loaded), isTotalKnown ? this.#total : undefined);
  }

  /** Restart the timeout. */
  #rearm() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => this.#reject(new Error(`Python did not start: no progress for ${this.#stall_ms / 1000} s.`)),
      this.#stall_ms,
    );
  }
}
