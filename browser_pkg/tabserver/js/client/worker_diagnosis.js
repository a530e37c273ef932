/**
 * Diagnosis of a worker that does not start: why the browser could not load or run the worker file.
 *
 * Browsers report a failed worker without a reason. The page requests the same file and compares it with what a worker file must
 * be. It finds mistakes of the app's author; an unknown reason stays unknown. It starts and ends no worker.
 */

import { pause } from "./locks.js";
import { blocksWasm, directiveThatBlocked, directiveThatBlocks, VIOLATION_DELAY_MS } from "./policy.js";
import { Problem } from "./reasons.js";
import { isLoopback } from "./relay_health.js";

const TIMEOUT_MS = 5_000;
/** The loader has 3 KB, and a worker file that imports the relay's worker one line. */
const MAX_CHARACTERS = 64 * 1024;
const JAVASCRIPT = /^(text|application)\/(x-)?(java|ecma)script$/;
const LOADER_ADDRESS = /\bRELAY\s*=\s*["'`]([^"'`]+)["'`]/;
const IMPORT = /\bimport\s*(?:[\w*{},\s]+\sfrom\s*)?\(?\s*["'`]([^"'`]+)["'`]/g;

/**
 * What is wrong with a worker file; undefined if nothing is found.
 * @param {URL} url the address with which the worker was started
 * @param {string} relay
 * @param {AbortSignal} cancelled
 * @returns {Promise<Problem | undefined>}
 */
export async function diagnoseWorker(url, relay, cancelled) {
  const file = fileOf(url);
  await pause(VIOLATION_DELAY_MS, cancelled);
  const values = { file, relay, socket: relay.replace(/^http/, "ws"), origin: location.origin };
  const directive = directiveThatBlocked(file);
  if (directive) return new Problem("policy_blocks_worker", { ...values, directive });
  let response;
  let text = "";
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), cancelled]);
    response = await fetch(url, { cache: "no-cache", signal });
    text = (await response.text()).slice(0, MAX_CHARACTERS);
  } catch {
    return new Problem("worker_unreachable", values);
  }
  if (!response.ok) return new Problem("worker_missing", { ...values, status: response.status });
  const type = (response.headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() || "a file without a type";
  if (type === "text/html") return new Problem("worker_is_html", values);
  if (!JAVASCRIPT.test(type)) return new Problem("worker_type", { ...values, type });
  const policy = response.headers.get("content-security-policy");
  if (blocksWasm(policy)) return new Problem("wasm_blocked", values);
  const blocked = url.origin === relay ? undefined : directiveThatBlocks(policy, relay);
  if (blocked) return new Problem("worker_policy", { ...values, directive: blocked });
  return url.origin === relay ? undefined : checkText(text, url, values);
}

/** The address that the app's author knows. @param {URL} url */
export function fileOf(url) {
  const shown = new URL(url);
  shown.searchParams.delete("v");
  return shown.href;
}

/**
 * Do both addresses lead to one relay? The loopback names of one port do.
 * @param {string} one
 * @param {string} other
 */
export function isSameRelay(one, other) {
  const [a, b] = [new URL(one), new URL(other)];
  return a.origin === b.origin || (a.port === b.port && isLoopback(a.hostname) && isLoopback(b.hostname));
}

/**
 * @param {string} text
 * @param {URL} url
 * @param {{ relay: string }} values
 */
function checkText(text, url, values) {
  const imports = [...text.matchAll(IMPORT)].map(([, address = ""]) => absolute(address, url)).filter((found) => found !== undefined);
  const named = absolute(LOADER_ADDRESS.exec(text)?.[1] ?? "", url) ?? imports.find(({ origin }) => origin !== url.origin);
  if (named && named.origin !== url.origin && !isSameRelay(named.origin, values.relay)) {
    return new Problem("relay_mismatch", { ...values, other: named.origin });
  }
  if (LOADER_ADDRESS.test(text)) return undefined;
  const wrong = imports.find(({ origin, pathname }) => origin !== url.origin && pathname !== "/-/worker.js");
  if (wrong) return new Problem("worker_import", { ...values, other: `imports ${wrong.href}` });
  // A file of its own may import the loader, so only one that imports nothing is certainly wrong.
  const isPossible = /\bimport\b|importScripts/.test(text);
  return isPossible ? undefined : new Problem("worker_import", { ...values, other: "imports nothing, or is not valid JavaScript" });
}

/**
 * @param {string} address
 * @param {URL} base
 */
function absolute(address, base) {
  return /^(\w+:|[./])/.test(address) && URL.canParse(address, base.href) ? new URL(address, base) : undefined;
}
