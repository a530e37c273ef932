/**
 * Connection state that a page shows: the current `State` and its "state" events.
 *
 * It has two sources: the worker reports the state of the link, and the page itself reports the states of its startup, when
 * there is no worker yet. Each change dispatches one event. It starts nothing and decides no retry.
 *
 * @import { State, Why } from "../client.js"
 * @import { StateMessage } from "../ports.js"
 */

import { BUILD } from "../build.js";

/** @typedef {{ retry_in_ms?: number | null, attempts?: number }} Retry */

export class ConnectionState {
  /** @type {State} */
  current;
  #relay;
  #server;
  #dispatch;
  /** Is this copy of the client of another build than the relay? */
  #isOutdated = false;

  /**
   * @param {string} relay
   * @param {string} server
   * @param {(state: State) => void} dispatch
   */
  constructor(relay, server, dispatch) {
    this.#relay = relay;
    this.#server = server;
    this.#dispatch = dispatch;
    this.current = this.#make("connecting", null, "Starting");
  }

  /**
   * A state that the page itself is in.
   * @param {State["state"]} state
   * @param {Why | null} why
   * @param {string} message
   * @param {Retry} [retry]
   */
  set(state, why, message, retry) {
    this.#change(this.#make(state, why, message, retry));
  }

  /**
   * The worker's state.
   * @param {StateMessage} message
   */
  receive(message) {
    this.#change(this.#withVersion(message));
  }

  /** @param {string} build the relay's */
  compareBuild(build) {
    this.#isOutdated = BUILD !== "" && build !== BUILD;
  }

  /** @param {State} state */
  #change(state) {
    this.current = state;
    this.#dispatch(state);
  }

  /**
   * @param {State["state"]} state
   * @param {Why | null} why
   * @param {string} message
   * @param {Retry} [retry]
   * @returns {State}
   */
  #make(state, why, message, { retry_in_ms = null, attempts = 0 } = {}) {
    const since_ms = Date.now();
    return { state, why, message, retry_in_ms, server: this.#server, since_ms, attempts };
  }

  /**
   * A bundled client of another build works as far as both builds go. The state then asks the app's author for an update.
   * @param {State} state
   * @returns {State}
   */
  #withVersion(state) {
    if (!this.#isOutdated || state.state !== "connected" || state.why) return state;
    const message = `This app's copy of the client has another version than the relay. ` +
      `Update it: npm install ${this.#relay}/-/tabrelay.tgz`;
    return { ...state, why: "version", message };
  }
}
