/**
 * Credential of this page for one server: the key of a token that the app passed to `connect`, or that pairing gave.
 *
 * A page of the relay exchanges the code in its address for a token; a page of another origin asks for one. The worker gets a key
 * that may only serve. No token is stored or passed on, except one of an authorization server, which is sent over https only.
 *
 * @import { Pairing } from "../client.js"
 * @import { Key } from "../proof.js"
 */

import { requestPairing } from "./request_pairing.js";
import { canStore, dropKeys, findKeys } from "./key_store.js";
import { isOwnPage, pair, tokenKey } from "./redeem_code.js";
import { Problem } from "./reasons.js";
import { isAccessToken, keyOf, keysFrom, prove, Unproven } from "../proof.js";

const PROOF_TIMEOUT_MS = 10_000;

export class Credential {
  /** The token that the app passed to `connect`. @type {string | undefined} */
  given;
  /** The storage key of the keys in this origin. */
  name;
  /** Is this a page of the relay itself? */
  isOwn;
  #relay;
  #server;
  /** @type {Key | undefined} */
  #key;

  /**
   * @param {string} relay
   * @param {string} server
   */
  constructor(relay, server) {
    this.#relay = relay;
    this.#server = server;
    this.isOwn = isOwnPage(relay);
    this.name = tokenKey(relay, server);
  }

  /**
   * For the worker: a key and its id. Without a key, `token` is an access token that is sent unchanged, or empty.
   * @returns {{ token: string, key?: CryptoKey | string }}
   */
  forWorker() {
    if (this.#key) return { token: this.#key.id, key: this.#key.key };
    return { token: this.given ?? "" };
  }

  /**
   * Obtain a key if there is none. Returns the problem if that fails.
   * @param {AbortSignal} signal
   * @param {(detail: Pairing) => boolean} onCode shows the code to approve; true if the page shows it itself
   * @param {string} [refused] the id of a key that the relay does not know
   * @returns {Promise<Problem | undefined>}
   */
  async obtain(signal, onCode, refused) {
    if (this.given) {
      this.#key = isAccessToken(this.given) ? undefined : (await keysFrom(await keyOf(this.given))).worker;
      if (this.#key || this.#relay.startsWith("https:")) return undefined;
      return new Problem("token_needs_https");
    }
    if (!canStore()) return new Problem("storage_blocked", { origin: location.origin });
    const { keys, problem } = this.isOwn
      ? await pair(this.#relay)
      : await requestPairing(this.#relay, this.#server, signal, onCode, refused);
    this.#key = keys?.worker;
    if (keys) return undefined;
    if (problem instanceof Problem) return problem;
    return problem ? Problem.stated("not_paired", problem, {}) : new Problem("not_paired");
  }

  /**
   * Check that the program at the address is the relay. Returns the problem if it is not.
   * @param {AbortSignal} cancelled
   * @returns {Promise<Unproven | undefined>}
   */
  async checkRelay(cancelled) {
    if (!this.#key) return undefined;
    try {
      await prove(this.#relay, this.#key, AbortSignal.any([AbortSignal.timeout(PROOF_TIMEOUT_MS), cancelled]));
      return undefined;
    } catch (error) {
      if (error instanceof Unproven) return error;
      throw error;
    }
  }

  /** Another tab of this origin was paired: read its key. True if the key is new to this tab. */
  async reload() {
    const keys = this.given ? undefined : await findKeys(this.name);
    if (!keys || keys.worker.id === this.#key?.id) return false;
    this.#key = keys.worker;
    return true;
  }

  /** Has this browser a token or a key for this relay? */
  get isKnown() {
    return Boolean(this.given) || (canStore() && localStorage.getItem(this.name) !== null);
  }

  /** Can this page ask for another key? */
  get canAsk() {
    return !this.isOwn && !this.given;
  }

  /** Delete the key: the relay has proved itself, and has revoked it. */
  async forget() {
    const keys = await findKeys(this.name);
    // Another tab may have got a new one in the meantime.
    if (keys && keys.worker.id === this.#key?.id) await dropKeys(this.name);
  }
}
