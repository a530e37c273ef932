/**
 * Draws the live list of calls, newest first, and keeps the last fifty: a page left open for a week must not grow.
 */

import { byId, duration, element, setText } from "/-/page/element.js";

/**
 * @typedef {import("/-/client.js").Activity} Activity
 * @typedef {{ row: HTMLLIElement, startedMs: number, isOpen: boolean }} Entry
 */

const KEPT = 50;
const TICK_MS = 500;

/** @type {Record<Activity["phase"], string>} */
const PHASES = { started: "running", progress: "running", done: "done", failed: "failed", cancelled: "cancelled" };

/**
 * @param {(owner: string) => string} nameOwner what to call the place where a call ran
 * @param {(inFlight: number) => void} onInFlight
 */
export function calls(nameOwner, onInFlight) {
  const host = byId("calls", HTMLOListElement);
  const empty = byId("calls-empty", HTMLElement);
  const counter = byId("calls-count", HTMLElement);
  /** @type {Map<string, Entry>} */
  const entries = new Map();
  let seen = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let ticking;

  /** @param {Activity} activity @returns {Entry} */
  function entryOf(activity) {
    const known = entries.get(activity.call);
    if (known) return known;
    const row = /** @type {HTMLLIElement} */ (newRow(activity));
    // A page that joins late hears of a call only when it ends; then the call began that much earlier.
    const entry = { row, startedMs: activity.at_ms - (activity.ms ?? 0), isOpen: true };
    entries.set(activity.call, entry);
    host.prepend(row);
    seen += 1;
    prune();
    return entry;
  }

  function prune() {
    for (const [call, entry] of entries) {
      if (entries.size <= KEPT) return;
      entry.row.remove();
      entries.delete(call);
    }
  }

  function tick() {
    for (const { row, startedMs, isOpen } of entries.values()) {
      if (isOpen) write(row, ".took", duration(Math.max(1, Date.now() - startedMs)));
    }
  }

  function count() {
    let inFlight = 0;
    for (const { isOpen } of entries.values()) inFlight += isOpen ? 1 : 0;
    empty.hidden = seen > 0;
    setText(counter, seen === 0 ? "" : `${seen} since this page opened${inFlight ? `, ${inFlight} running` : ""}`);
    onInFlight(inFlight);
    // The clock runs only while something does.
    if (inFlight && ticking === undefined) ticking = setInterval(tick, TICK_MS);
    if (!inFlight) {
      clearInterval(ticking);
      ticking = undefined;
    }
  }

  return {
    /** @param {Activity} activity */
    show(activity) {
      const entry = entryOf(activity);
      const { row } = entry;
      entry.isOpen = PHASES[activity.phase] === "running";
      row.dataset.phase = activity.phase;
      write(row, ".phase", PHASES[activity.phase]);
      write(row, ".where", [activity.client, nameOwner(activity.owner)].filter(Boolean).join(" → "));
      if (activity.ms !== undefined) write(row, ".took", duration(activity.ms));
      progress(row, activity, entry.isOpen);
      const wrong = row.querySelector(".wrong");
      if (wrong instanceof HTMLElement) {
        wrong.hidden = !activity.error;
        setText(wrong, activity.error ?? "");
      }
      count();
    },
  };
}

/** @param {Activity} activity */
function newRow({ call, name, at_ms }) {
  const when = new Date(at_ms);
  const clock = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return element(
    "li",
    { "data-call": call, "data-phase": "started" },
    element("span", { class: "dot" }),
    element("span", { class: "name" }, name),
    element("span", { class: "took" }),
    element("span", { class: "where" }),
    element("span", { class: "phase" }),
    element("time", { datetime: when.toISOString() }, clock),
    element("progress", { max: 1, hidden: true, "aria-label": `Progress of ${name}` }),
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
