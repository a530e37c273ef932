/**
 * Violations of the page's content security policy, and a check of the policy of a worker file.
 *
 * A browser reports a blocked request only as failed. It dispatches an event for the violation, which this module records from the
 * moment it is loaded. It decides nothing: `relay_health.js` and `worker_diagnosis.js` ask it.
 */

/** The last violations; older ones are dropped. */
const MAX_VIOLATIONS = 32;
/** @type {{ directive: string, uri: string }[]} */
const violations = [];

globalThis.document?.addEventListener("securitypolicyviolation", (event) => {
  if (event.disposition !== "enforce") return;
  violations.push({ directive: event.effectiveDirective, uri: event.blockedURI });
  if (violations.length > MAX_VIOLATIONS) violations.shift();
});

/** A violation is dispatched a moment after the request has failed. */
export const VIOLATION_DELAY_MS = 100;

/**
 * The directive that has blocked requests to addresses that begin with this one; undefined if none has.
 * @param {string} address
 */
export function directiveThatBlocked(address) {
  return violations.findLast(({ uri }) => uri.startsWith(address) || uri === new URL(address).origin)?.directive;
}

/**
 * Does the policy of a worker file block WebAssembly?
 * @param {string | null} policy
 */
export function blocksWasm(policy) {
  const scripts = policy ? sourcesOf(policy, "script-src") : undefined;
  return scripts !== undefined && !scripts.some((source) => /^'(wasm-)?unsafe-eval'$/.test(source));
}

/**
 * @param {string} policy
 * @param {string} name
 * @returns {string[] | undefined}
 */
function sourcesOf(policy, name) {
  const directives = policy.split(/[;,]/).map((directive) => directive.trim().split(/\s+/));
  const find = (/** @type {string} */ wanted) => directives.find(([given = ""]) => given.toLowerCase() === wanted)?.slice(1);
  return find(name) ?? find("default-src");
}

/**
 * The directive of a worker file's policy that blocks the relay; undefined if none does.
 * @param {string | null} policy the header of the file
 * @param {string} relay
 * @returns {string | undefined}
 */
export function directiveThatBlocks(policy, relay) {
  if (!policy) return undefined;
  const [scripts, connections] = [sourcesOf(policy, "script-src"), sourcesOf(policy, "connect-src")];
  if (scripts && !allows(scripts, relay)) return "script-src";
  if (connections && !(allows(connections, relay) && allows(connections, relay.replace(/^http/, "ws")))) return "connect-src";
  return undefined;
}

/**
 * @param {string[]} sources
 * @param {string} origin
 */
function allows(sources, origin) {
  const { protocol, host, hostname } = new URL(origin);
  const isOwn = origin === location.origin || origin === location.origin.replace(/^http/, "ws");
  return sources.some((source) => {
    const bare = source.replace(/\/.*$/, (path) => (path.startsWith("//") ? path : ""));
    return source === "*" || source === protocol || bare === origin || bare === host || bare === `${hostname}:*`
      || bare === `${protocol}//${hostname}:*` || (source === "'self'" && isOwn);
  });
}
