/**
 * Progress of the guide on the demo page: which of its steps the visitor has done, as events show it.
 *
 * Each step is done when what it is about has happened, however it was caused. Done steps are kept in the storage of this browser and
 * shared by its tabs. Pure apart from that: it draws nothing and calls nothing.
 */

import { OWN_CLIENT } from "./drawing/people.js";

/**
 * @typedef {import("/-/client.js").Activity} Activity
 * @typedef {"run" | "connect" | "tab" | "cut" | "approve"} StepId
 */

/** @type {StepId[]} */
export const STEPS = ["run", "connect", "tab", "cut", "approve"];
const STORED = "tabrelay-demo-guide";
/** Names that pages of the relay have when they call tools. */
const OWN_PAGES = new Set([OWN_CLIENT, "tabrelay page", "playground"]);
const MAX_CALLS = 1000;

export class GuideProgress extends EventTarget {
  /** @type {Set<StepId>} */
  #done;
  #isConnected = false;
  /** Running calls: true for those that ran while the connection was lost. @type {Map<string, boolean>} */
  #running = new Map();
  /** Calls that ended while there was no connection. */
  #unsent = 0;
  /** Tools that asked the visitor and have not ended. @type {Set<string>} */
  #asked = new Set();

  constructor() {
    super();
    this.#done = read();
    globalThis.addEventListener?.("storage", ({ key }) => {
      if (key !== STORED) return;
      this.#done = read();
      this.#notify();
    });
  }

  /** @param {StepId} step */
  isDone(step) {
    return this.#done.has(step);
  }

  /** The first step that is not done. @returns {StepId | null} */
  get next() {
    return STEPS.find((step) => !this.#done.has(step)) ?? null;
  }

  reset() {
    this.#done.clear();
    this.#save();
  }

  /** @param {Activity} activity */
  activity({ call, kind, name, client = "", phase }) {
    if (phase === "started") {
      if (this.#running.size < MAX_CALLS) this.#running.set(call, !this.#isConnected);
      return;
    }
    if (phase === "progress") return;
    const wasCut = this.#running.get(call) === true;
    this.#running.delete(call);
    if (phase === "done" && kind === "tools") {
      if (OWN_PAGES.has(client)) this.#finish("run");
      if (this.#asked.has(name)) this.#finish("approve");
      if (wasCut && this.#isConnected) this.#finish("cut");
      else if (wasCut) this.#unsent += 1;
    }
    if (!OWN_PAGES.has(client)) this.#finish("connect");
    this.#asked.delete(name);
  }

  /** @param {boolean} isConnected */
  connection(isConnected) {
    this.#isConnected = isConnected;
    if (!isConnected) for (const call of this.#running.keys()) this.#running.set(call, true);
    if (isConnected && this.#unsent) this.#finish("cut");
    if (isConnected) this.#unsent = 0;
  }

  /** How many tabs of this browser are attached to the server. @param {number} count */
  tabs(count) {
    if (count > 1) this.#finish("tab");
  }

  /** A tool asks the visitor before it runs. @param {string} name */
  asks(name) {
    if (this.#asked.size < MAX_CALLS) this.#asked.add(name);
  }

  /** @param {StepId} step */
  #finish(step) {
    if (this.#done.has(step)) return;
    // Another tab may have saved a step of its own a moment ago.
    this.#done = new Set([...read(), ...this.#done, step]);
    this.#save(step);
  }

  /** @param {StepId} [step] */
  #save(step) {
    try {
      localStorage.setItem(STORED, JSON.stringify([...this.#done]));
    } catch {
      // Without storage the progress lasts as long as the page.
    }
    this.#notify(step);
  }

  /** @param {StepId} [step] that was just done */
  #notify(step) {
    this.dispatchEvent(new CustomEvent("change", { detail: { step: step ?? null } }));
  }
}

/** @returns {Set<StepId>} */
function read() {
  try {
    const stored = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return new Set(STEPS.filter((step) => stored.includes(step)));
  } catch {
    return new Set();
  }
}
