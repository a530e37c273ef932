/**
 * Report of why a page does not serve: one line in the console for each reason, and a panel if the app shows no state itself.
 *
 * A reason is logged once, and again only after the page has served for a while. The panel appears after a moment, stays while the
 * page does not serve, and disappears when it serves. An app shows the state itself if it listens for "state". The texts are in
 * `reasons.js`, the panel's look in `corner_panel.js`.
 *
 * @import { ReasonCode, State } from "../client.js"
 * @import { Problem, Remedy } from "./reasons.js"
 */

import { showPanel } from "./corner_panel.js";
import { isDeveloped } from "./relay_health.js";

/** The app's own script may add its listener for "state" a moment after `connect`. */
const PANEL_DELAY_MS = 500;
/** For what usually ends by itself. */
const BRIEF_DELAY_MS = 5_000;
/** After this time with a connection, a reason is logged again. */
const STABLE_MS = 10_000;
/** @type {ReasonCode[]} */
const BRIEF = ["lost", "restarting", "timeout", "worker_ended"];
/** The page's own decision, or shown by the panel with the code. @type {ReasonCode[]} */
const NO_PANEL = ["closed", "pairing"];
const LABELS = { retry: "Try again", ask: "Ask again", reload: "Reload" };

/**
 * @typedef {object} Reported
 * @property {() => boolean} wantsPanel may a panel be shown now?
 * @property {() => void} retry
 */

export class ProblemReporter {
  #owner;
  /** @type {Set<string>} */
  #logged = new Set();
  /** @type {{ problem: Problem, close: () => void } | undefined} */
  #shown;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** The reason that the timer waits to show. @type {Problem | undefined} */
  #next;
  #connectedAt = 0;

  /** @param {Reported} owner */
  constructor(owner) {
    this.#owner = owner;
  }

  /**
   * @param {State} state
   * @param {Problem | null} problem
   */
  report({ state }, problem) {
    const isConnected = state === "connected";
    if (isConnected && !this.#connectedAt) this.#connectedAt = performance.now();
    if (!isConnected && this.#connectedAt) {
      if (performance.now() - this.#connectedAt >= STABLE_MS) this.#logged.clear();
      this.#connectedAt = 0;
    }
    if (problem) this.#log(problem, state);
    if (isConnected || (problem && NO_PANEL.includes(problem.code))) this.hide();
    else if (problem) this.#show(problem);
  }

  /** The app shows the state itself from now on, or its connection is closed. */
  hide() {
    clearTimeout(this.#timer);
    this.#next = undefined;
    this.#shown?.close();
    this.#shown = undefined;
  }

  /**
   * @param {Problem} problem
   * @param {State["state"]} state
   */
  #log(problem, state) {
    // Each code to approve is another one.
    const key = problem.code === "pairing" ? problem.message : problem.code;
    if (this.#logged.has(key)) return;
    this.#logged.add(key);
    logProblem(problem, NO_PANEL.includes(problem.code) ? "info" : state === "stopped" ? "error" : "warn");
  }

  /** @param {Problem} problem */
  #show(problem) {
    const last = this.#next ?? this.#shown?.problem;
    if (last?.message === problem.message) return;
    clearTimeout(this.#timer);
    this.#next = problem;
    // A panel that is there changes at once.
    const delay_ms = this.#shown ? 0 : BRIEF.includes(problem.code) ? BRIEF_DELAY_MS : PANEL_DELAY_MS;
    this.#timer = setTimeout(() => {
      this.hide();
      if (this.#owner.wantsPanel()) this.#shown = { problem, close: showProblem(problem, () => this.#owner.retry()) };
    }, delay_ms);
  }
}

/**
 * @param {Problem} problem
 * @param {"error" | "warn" | "info"} [level]
 */
export function logProblem(problem, level = "error") {
  console[level](`tabrelay: ${problem.message} [${problem.help}]`);
}

/**
 * A visitor of a public site who has never used a relay is not told that there is none.
 * @param {boolean | undefined} wanted the option `panel`
 * @param {boolean} isKnown has this browser used the relay?
 */
export function mayShowPanel(wanted, isKnown) {
  return wanted ?? (isKnown || location.protocol === "file:" || isDeveloped(location.hostname));
}

/**
 * @param {Problem} problem
 * @param {() => void} retry
 * @returns {() => void} removes the panel
 */
export function showProblem(problem, retry) {
  const close = showPanel({
    title: problem.happened,
    text: [problem.todo, `Help: tabrelay help ${problem.help}`],
    isAlert: true,
    actions: [...remedies(problem.remedy, retry), { label: "Hide", run: () => close() }],
  });
  return close;
}

/**
 * @param {Remedy} remedy
 * @param {() => void} retry
 * @returns {import("./corner_panel.js").Action[]}
 */
function remedies(remedy, retry) {
  if (remedy === "none") return [];
  if (remedy === "reload") return [{ label: LABELS.reload, kind: "main", run: () => location.reload() }];
  return [{ label: LABELS[remedy], kind: "main", run: (say) => (say("Trying again…"), retry()) }];
}
