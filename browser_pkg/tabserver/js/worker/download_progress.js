/**
 * Watches the downloads of a boot: counts bytes, and notices when one fails or when nothing moves any more.
 * It tells; what to do about it is the business of boot.js.
 */

const REPORT_EVERY_MS = 100;

export class DownloadProgress {
  /** Rejects when the boot can't succeed any more; never resolves. @type {Promise<never>} */
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
   * @param {(loaded: number, total: number | undefined) => void} [report] without it, bytes are not counted: that takes time
   */
  constructor(stall_ms, report) {
    this.#stall_ms = stall_ms;
    this.#report = report;
    this.failed = new Promise((_, reject) => {
      this.#reject = reject;
    });
    this.#rearm();
  }

  /** Everything is here: say nothing more of downloads. The time-out goes on until `stop`. */
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
   * Fetch, and look on while the response is read. The bytes of a clone are counted, so that the caller gets the response
   * it asked for: browsers keep compiled wasm only for a response that came from the network.
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
    // The length of a compressed response is not the number of bytes that will be read.
    if (!length || headers.get("content-encoding")) this.#isTotalKnown = false;
    this.#total += length;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.#loaded += value.byteLength;
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
    this.#report?.(this.#loaded, isTotalKnown ? this.#total : undefined);
  }

  /** The time-out counts from the last sign of progress: a slow network is not a failure. */
  #rearm() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => this.#reject(new Error(`Python did not start: no progress for ${this.#stall_ms / 1000} s.`)),
      this.#stall_ms,
    );
  }
}
