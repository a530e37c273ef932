/**
 * Program in the fragment of an address: `#program=python.<deflated text, base64url>`.
 *
 * The fragment is not sent to any server. Both directions have a bound, and text that decompresses to more is refused before it is
 * complete. Reading a fragment executes nothing.
 */

/** Characters of a program; the editor takes no more. */
export const MAX_SOURCE = 32 * 1024;
const MAX_FRAGMENT = 64 * 1024;
const FRAGMENT = /^#program=(python|javascript)\.([A-Za-z0-9_-]+)$/;

/**
 * @typedef {import("./sandbox.js").Language} Language
 * @typedef {{ language: Language, source: string }} Program
 */

/**
 * @param {Program} program
 * @returns {Promise<string>} with the `#`
 */
export async function toFragment({ language, source }) {
  if (source.length > MAX_SOURCE) throw new RangeError(`A program has at most ${MAX_SOURCE} characters. [TR494]`);
  const packed = new Blob([source]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  let binary = "";
  for (let start = 0; start < bytes.length; start += 0x8000) binary += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  const text = btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `#program=${language}.${text}`;
}

/**
 * The program of a fragment; null: it has none. Rejects with a text for people if the program can't be read.
 * @param {string} fragment
 * @returns {Promise<Program | null>}
 */
export async function fromFragment(fragment) {
  if (!fragment.startsWith("#program=")) return null;
  const [, language, text] = (fragment.length <= MAX_FRAGMENT && FRAGMENT.exec(fragment)) || [];
  if (!language || !text) throw new Error("The address has a program that can't be read. It may have been cut: ask for the whole address. [TR494]");
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    return { language: /** @type {Language} */ (language), source: await inflate(bytes) };
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw new Error("The address has a program that can't be read. It may have been cut: ask for the whole address. [TR494]");
  }
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function inflate(bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let source = "";
  for (;;) {
    const { done, value } = await reader.read();
    source += decoder.decode(value, { stream: !done });
    // defence: bound of a shared program
    if (source.length > MAX_SOURCE) {
      void reader.cancel().catch(() => {});
      throw new RangeError(`The address has a program of more than ${MAX_SOURCE} characters. [TR494]`);
    }
    if (done) return source;
  }
}
