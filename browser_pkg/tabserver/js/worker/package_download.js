/**
 * Download of Python packages from the relay: with the page's proof, counted bytes, and a comparison of the hash.
 *
 * The relay gives packages only to pages that may serve, because they may come from a private index. It unpacks nothing:
 * browser/package_installer.py does.
 */

const REPORT_EVERY_MS = 100;
/** A download without a byte for this long has failed. */
const STALL_MS = 30_000;

/**
 * @param {string} url
 * @param {string} bearer
 * @param {AbortSignal} signal
 */
async function request(url, bearer, signal) {
  const response = await fetch(url, { headers: { Authorization: `Bearer ${bearer}` }, signal }).catch((error) => {
    throw new Error(`could not be loaded from the relay: ${error.message}`);
  });
  if (!response.ok) throw new Error(`could not be loaded: the relay answers ${response.status}`);
  return response;
}

/**
 * @param {string} url
 * @param {string} bearer
 */
export async function loadText(url, bearer) {
  return (await request(url, bearer, AbortSignal.timeout(STALL_MS))).text();
}

/**
 * @param {string} url
 * @param {string} bearer
 * @param {string} sha256 in hexadecimal
 * @param {(loaded: number, total: number) => void} report
 * @returns {Promise<Uint8Array>}
 */
export async function loadWheel(url, bearer, sha256, report) {
  const stalled = new AbortController();
  let timer = setTimeout(() => stalled.abort(), STALL_MS);
  try {
    const response = await request(url, bearer, stalled.signal);
    const total = Number(response.headers.get("content-length"));
    const bytes = new Uint8Array(total);
    let loaded = 0;
    let reported_ms = performance.now();
    for (const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      clearTimeout(timer);
      timer = setTimeout(() => stalled.abort(), STALL_MS);
      bytes.set(value, loaded);
      loaded += value.byteLength;
      if (performance.now() - reported_ms < REPORT_EVERY_MS) continue;
      reported_ms = performance.now();
      report(loaded, total);
    }
    report(loaded, total);
    // defence: a package that differs from the one in the index
    if ((await hexDigest(bytes)) !== sha256) throw new Error("is damaged: its hash is not the one of the index");
    return bytes;
  } finally {
    clearTimeout(timer);
  }
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function hexDigest(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
