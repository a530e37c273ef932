/**
 * What this page proves to the relay for one server: the key of a token that it brought along, or of one that it was given
 * when it was paired. A page of the relay trades the code in its address for one; a page of another origin asks.
 *
 * The worker gets a key that may serve and nothing else. No token is kept or passed on, but for one of an authorization
 * server, which is sent over https only.
 *
 * @import { Pairing } from "../client.js"
 * @import { Key } from "../proof.js"
 */

import { requestPairing } from "./request_pairing.js";
import { dropKeys, findKeys } from "./key_store.js";
import { pair, tokenKey } from "./redeem_code.js";
import { isAccessToken, keyOf, keysFrom, prove, Unproven } from "../proof.js";

const PROOF_TIMEOUT_MS = 10_000;

export class Credential {
  /** What the page brought along. @type {string | undefined} */
  given;
  /** Where the keys are kept in this origin's storage. */
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
    this.isOwn = relay === location.origin;
    this.name = tokenKey(relay, server);
  }

  /**
   * For the worker: a key and its id. An id without a key is a token that is shown as it is; an empty one is none.
   * @returns {{ token: string, key?: CryptoKey | string }}
   */
  forWorker() {
    if (this.#key) return { token: this.#key.id, key: this.#key.key };
    return { token: this.given ?? "" };
  }

  /**
   * Get a key if there is none. Gives back what is in the way, if anything is.
   * @param {AbortSignal} signal
   * @param {(detail: Pairing) => boolean} onCode of the code to approve; true if the page shows it itself
   * @param {string} [refused] the id of a key that the relay does not know
   * @returns {Promise<string | undefined>}
   */
  async obtain(signal, onCode, refused) {
    if (this.given) {
      this.#key = isAccessToken(this.given) ? undefined : (await keysFrom(await keyOf(this.given))).worker;
      if (this.#key || this.#relay.startsWith("https:")) return undefined;
      return "A token of an authorization server is sent over https only.";
    }
    const { keys, problem } = this.isOwn
      ? await pair(this.#relay)
      : await requestPairing(this.#relay, this.#server, signal, onCode, refused);
    this.#key = keys?.worker;
    return keys ? undefined : (problem ?? "This page is not paired with the relay. Run: tabrelay pair");
  }

  /**
   * Is it the relay that answers there? Gives back what speaks against it.
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

  /** Another tab of this origin was paired. True if there is a key that this one did not know. */
  async reload() {
    const keys = this.given ? undefined : await findKeys(this.name);
    if (!keys || keys.worker.id === this.#key?.id) return false;
    this.#key = keys.worker;
    return true;
  }

  /** Can this page ask for another key? */
  get canAsk() {
    return !this.isOwn && !this.given;
  }

  /** The relay has proved itself, and has revoked the key. */
  async forget() {
    const keys = await findKeys(this.name);
    // Another tab may have got a new one in the meantime.
    if (keys && keys.worker.id === this.#key?.id) await dropKeys(this.name);
  }
}
