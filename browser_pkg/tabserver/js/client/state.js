/**
 * Connection state that a page shows: the current `State` and its "state" events.
 *
 * It has two sources: the worker reports the state of the link, and the page itself reports the states of its startup, when
 * there is no worker yet. Each change dispatches one event. It starts nothing and decides no retry.
 *
 * @import { State } from "../client.js"
 * @import { StateMessage } from "../ports.js"
 */

import { BUILD } from "../build.js";
import { Problem } from "./reasons.js";
import { startCommand } from "./relay_health.js";

/** @typedef {{ retry_in_ms?: number | null, attempts?: number }} Retry */

export class ConnectionState {
  /** @type {State} */
  current;
  #relay;
  #server;
  #changed;
  /** Is this copy of the client of another build than the relay? */
  #isOutdated = false;

  /**
   * @param {string} relay
   * @param {string} server
   * @param {(state: State, problem: Problem | null) => void} changed
   */
  constructor(relay, server, changed) {
    this.#relay = relay;
    this.#server = server;
    this.#changed = changed;
    this.current = this.#make("connecting", null, "Starting");
  }

  /**
   * The page starts something.
   * @param {string} message
   */
  connecting(message) {
    this.#change(this.#make("connecting", null, message), null);
  }

  /**
   * The page does not serve, for a reason that the page itself has found.
   * @param {State["state"]} state
   * @param {Problem} problem
   * @param {Retry} [retry]
   */
  fail(state, problem, retry) {
    this.#change(this.#make(state, problem, problem.message, retry), problem);
  }

  /**
   * The worker's state.
   * @param {StateMessage} message
   */
  receive(message) {
    if (message.why) {
      const values = { relay: this.#relay, server: this.#server, start: startCommand(this.#relay), origin: location.origin };
      this.#receive(message, Problem.stated(message.why, message.message, values));
    } else if (this.#isOutdated && message.state === "connected") {
      // A bundled client of another build works as far as both builds go. The state asks the app's author for an update.
      this.#receive(message, new Problem("client_outdated", { relay: this.#relay }));
    } else {
      this.#change({ ...message, code: null, help: null, todo: null }, null);
    }
  }

  /**
   * @param {StateMessage} stated
   * @param {Problem} problem
   */
  #receive(stated, problem) {
    const { why, code, help, message, todo } = problem;
    this.#change({ ...stated, why, code, help, message, todo }, problem);
  }

  /** @param {string} build the relay's */
  compareBuild(build) {
    this.#isOutdated = BUILD !== "" && build !== BUILD;
  }

  /**
   * @param {State} state
   * @param {Problem | null} problem
   */
  #change(state, problem) {
    this.current = state;
    this.#changed(state, problem);
  }

  /**
   * @param {State["state"]} state
   * @param {Problem | null} problem
   * @param {string} message
   * @param {Retry} [retry]
   * @returns {State}
   */
  #make(state, problem, message, { retry_in_ms = null, attempts = 0 } = {}) {
    const { why = null, code = null, help = null, todo = null } = problem ?? {};
    return { state, why, code, help, message, todo, retry_in_ms, server: this.#server, since_ms: Date.now(), attempts };
  }
}
