/**
 * Pairing of the relay's own pages: a one-time code in the address bar becomes a token in this origin's storage.
 *
 * The relay takes the token from this origin only, and for no call. Pages of other origins ask: see `asking.js`.
 */

export const TOKEN_KEY = "tabrelay.token";

/**
 * Where a page's token is kept: one for all servers on the relay's own origin, one for each elsewhere.
 * @param {string} relay
 * @param {string} server
 */
export function tokenKey(relay, server) {
  return relay === location.origin ? TOKEN_KEY : `${TOKEN_KEY}:${relay}/${server}`;
}

/** One attempt for all connections of the page: a code works once. @type {Promise<string | undefined> | undefined} */
let redeeming;

export function storedToken(key = TOKEN_KEY) {
  return localStorage.getItem(key) || undefined;
}

/**
 * Redeem the code in the address bar, if there is one, and return the token that this origin has.
 * @param {string} [relay]
 * @returns {Promise<{token: string | undefined, problem: string | undefined}>}
 */
export async function pair(relay = new URL(import.meta.url).origin) {
  const code = new URLSearchParams(location.hash.slice(1)).get("pair");
  if (code && relay === location.origin) {
    // First of all, so that the code does not stay in the history or in a bookmark.
    history.replaceState(history.state, "", location.pathname + location.search);
    redeeming = redeem(relay, code);
  }
  const problem = await redeeming;
  return { token: storedToken(), problem };
}

/**
 * @param {string} relay
 * @param {string} code
 * @returns {Promise<string | undefined>} what went wrong
 */
async function redeem(relay, code) {
  try {
    const response = await fetch(`${relay}/-/pair`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code }),
    });
    const answer = await response.json();
    if (!response.ok) return String(answer.message ?? `The relay refused the pairing code (${response.status}).`);
    localStorage.setItem(TOKEN_KEY, answer.token);
    return undefined;
  } catch (error) {
    return `The pairing code could not be redeemed: ${error instanceof Error ? error.message : error}`;
  }
}
