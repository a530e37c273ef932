/**
 * Live list of calls on the demo page, newest first, with arguments and results.
 *
 * It keeps the last 50 calls, so that a page that is left open for a week does not grow. It shows what the worker reports and
 * starts no call.
 */

import { byId, duration, element, setText } from "/-/page/element.js";
import { callText, resultLine } from "./call_text.js";

/**
 * @typedef {import("/-/client.js").Activity} Activity
 * @typedef {{ row: HTMLLIElement, startedMs: number, isOpen: boolean }} Entry
 */

const KEPT = 50;
const TICK_MS = 500;

/** @type {Record<Activity["phase"], string>} */
const PHASES = { started: "running", progress: "running", done: "done", failed: "failed", cancelled: "cancelled" };

export class CallList {
  #list = byId("calls", HTMLOListElement);
  #empty = byId("calls-empty", HTMLElement);
  #counter = byId("calls-count", HTMLElement);
  #describeOwner;
  /** @type {Map<string, Entry>} */
  #entries = new Map();
  #seen = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;

  /** @param {(owner: string) => string} describeOwner names the tab or worker where a call ran */
  constructor(describeOwner) {
    this.#describeOwner = describeOwner;
  }

  /** @param {Activity} activity */
  show(activity) {
    const entry = this.#entryOf(activity);
    const { row } = entry;
    entry.isOpen = PHASES[activity.phase] === "running";
    row.dataset.phase = activity.phase;
    write(row, ".phase", PHASES[activity.phase]);
    write(row, ".where", [activity.client, this.#describeOwner(activity.owner)].filter(Boolean).join(" → "));
    if (activity.ms !== undefined) write(row, ".took", duration(activity.ms));
    if (activity.phase === "done" && activity.kind === "tools") write(row, ".result", `→ ${resultLine(activity.result)}`);
    progress(row, activity, entry.isOpen);
    const wrong = row.querySelector(".wrong");
    if (wrong instanceof HTMLElement) {
      wrong.hidden = !activity.error;
      setText(wrong, activity.error ?? "");
    }
    this.#count();
  }

  /** @param {Activity} activity @returns {Entry} */
  #entryOf(activity) {
    const known = this.#entries.get(activity.call);
    if (known) return known;
    const row = /** @type {HTMLLIElement} */ (newRow(activity));
    // A page that joined late receives only the end of a call; the call's duration then gives its start.
    const entry = { row, startedMs: activity.at_ms - (activity.ms ?? 0), isOpen: true };
    this.#entries.set(activity.call, entry);
    this.#list.prepend(row);
    this.#seen += 1;
    this.#prune();
    return entry;
  }

  #prune() {
    for (const [call, entry] of this.#entries) {
      if (this.#entries.size <= KEPT) return;
      entry.row.remove();
      this.#entries.delete(call);
    }
  }

  #tick() {
    for (const { row, startedMs, isOpen } of this.#entries.values()) {
      if (isOpen) write(row, ".took", duration(Math.max(1, Date.now() - startedMs)));
    }
  }

  #count() {
    let inFlight = 0;
    for (const { isOpen } of this.#entries.values()) inFlight += isOpen ? 1 : 0;
    const seen = this.#seen;
    this.#empty.hidden = seen > 0;
    setText(this.#counter, seen === 0 ? "" : `${seen} since this page opened${inFlight ? `, ${inFlight} running` : ""}`);
    // The timer runs only while a call does.
    if (inFlight && this.#ticking === undefined) this.#ticking = setInterval(() => this.#tick(), TICK_MS);
    if (!inFlight) {
      clearInterval(this.#ticking);
      this.#ticking = undefined;
    }
  }
}

/** @param {Activity} activity */
function newRow(activity) {
  const { call, name, kind, at_ms } = activity;
  const when = new Date(at_ms);
  const clock = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return element(
    "li",
    { "data-call": call, "data-phase": "started" },
    element("span", { class: "dot" }),
    element("code", { class: "name" }, kind === "tools" ? callText(name, activity.arguments) : name),
    element("span", { class: "took" }),
    element("span", { class: "where" }),
    element("span", { class: "phase" }),
    element("time", { datetime: when.toISOString() }, clock),
    element("progress", { max: 1, hidden: true, "aria-label": `Progress of ${name}` }),
    element("code", { class: "result" }),
    element("p", { class: "wrong", hidden: true }),
  );
}

/** @param {HTMLElement} row @param {Activity} activity @param {boolean} isOpen */
function progress(row, activity, isOpen) {
  const bar = row.querySelector("progress");
  if (!bar) return;
  if (activity.progress !== undefined && activity.total) {
    bar.hidden = false;
    bar.value = Math.min(1, activity.progress / activity.total);
  } else if (activity.progress !== undefined) {
    write(row, ".phase", `running, at ${activity.progress}`);
  }
  if (!isOpen) bar.hidden = true;
}

/** @param {HTMLElement} row @param {string} selector @param {string} text */
function write(row, selector, text) {
  const part = row.querySelector(selector);
  if (part) setText(part, text);
}
