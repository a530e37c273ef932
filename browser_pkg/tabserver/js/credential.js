/**
 * What this page shows the relay for one server: a token that it brought along, or one that it was given when it was
 * paired. A page of the relay trades the code in its address for one; a page of another origin asks.
 *
 * @import { Pairing } from "./client.js"
 */

import { askToPair } from "./asking.js";
import { pair, storedToken, tokenKey } from "./pairing.js";

export class Credential {
  /** What the page brought along. @type {string | undefined} */
  given;
  /** Where the token is kept in this origin's storage. */
  key;
  /** Is this a page of the relay itself? */
  isOwn;
  #relay;
  #server;
  /** What the relay was shown last. */
  #shown = "";

  /**
   * @param {string} relay
   * @param {string} server
   */
  constructor(relay, server) {
    this.#relay = relay;
    this.#server = server;
    this.isOwn = relay === location.origin;
    this.key = tokenKey(relay, server);
  }

  /** The token to show the relay; empty if there is none. */
  show() {
    this.#shown = this.given ?? storedToken(this.key) ?? "";
    return this.#shown;
  }

  /**
   * Get a token if there is none. Gives back what is in the way, if anything is.
   * @param {AbortSignal} signal
   * @param {(detail: Pairing) => boolean} tell of the code to approve; true if the page shows it itself
   * @returns {Promise<string | undefined>}
   */
  async obtain(signal, tell) {
    if (this.given) return undefined;
    const { token, problem } = this.isOwn
      ? await pair(this.#relay)
      : await askToPair(this.#relay, this.#server, signal, tell);
    return token ? undefined : (problem ?? "This page is not paired with the relay. Run: tabrelay pair");
  }

  /** The relay does not take what it was shown: the next one must be asked for. False: this page can't ask. */
  forget() {
    if (this.isOwn || this.given) return false;
    // Another tab may have got a new one in the meantime.
    if (storedToken(this.key) === this.#shown) localStorage.removeItem(this.key);
    return true;
  }
}
