/**
 * Animated path of a call on the demo page: client, relay, worker, tab, and back, with arguments and result.
 *
 * Every call that the worker reports travels as a small label: to the worker or the tab, and back with the result when the call is done.
 * While the connection is cut, a result waits at the worker. Calls take milliseconds, so the labels are slower than the calls;
 * the time that is shown is the measured one. At most six labels are shown at once. It calls nothing.
 */

import { byId, duration, element, setText } from "/-/page/element.js";
import { callText, resultLine } from "./call_text.js";

/**
 * @typedef {import("/-/client.js").Activity} Activity
 * @typedef {import("./state.js").Notice["lamp"]} Track the style of the line *into* a stop
 * @typedef {"client" | "relay" | "worker" | "tabs"} Stop
 * @typedef {{ label: HTMLElement, target: Stop, arrived: Promise<unknown> }} Trip
 */

/** Where the stops are, in percent of the width. */
const PLACES = { client: 12.5, relay: 37.5, worker: 62.5, tabs: 87.5 };
/** Between two stops. */
const LEG_MS = 260;
const SHOWN_MS = 900;
const MAX_TRIPS = 6;
const LABEL_LENGTH = 30;

export class CallPath {
  #host = byId("line", HTMLElement);
  #lane = byId("lane", HTMLElement);
  #text = byId("last-call", HTMLElement);
  #about = byId("last-about", HTMLElement);
  #isStill = matchMedia("(prefers-reduced-motion: reduce)");
  #describeOwner;
  /** @type {Map<string, Trip>} */
  #trips = new Map();
  /** Call texts of running calls, also of those without a label. @type {Map<string, string>} */
  #running = new Map();
  /** The call that started last: its text is shown. */
  #latest = "";
  /** Calls that ended so far, and the number of the one whose result is shown. */
  #ended = 0;
  #shown = 0;
  #isConnected = false;
  /** @type {(() => void)[]} */
  #waiting = [];

  /** @param {(owner: string) => string} describeOwner names the tab or worker where a call runs */
  constructor(describeOwner) {
    this.#describeOwner = describeOwner;
  }

  /** @param {Stop} stop @param {string} text */
  setLabel(stop, text) {
    const label = this.#at(stop).querySelector("span");
    if (label) setText(label, text);
  }

  /** @param {Stop} stop @param {Track} track */
  setTrack(stop, track) {
    this.#at(stop).dataset.track = track;
  }

  /** Results leave the worker only while it is connected. @param {boolean} isConnected */
  connection(isConnected) {
    const wasConnected = this.#isConnected;
    this.#isConnected = isConnected;
    this.#host.toggleAttribute("data-cut", !isConnected && this.#running.size > 0);
    if (!isConnected && wasConnected && this.#running.size) {
      setText(this.#about, "The connection is cut. The call goes on; its result will be sent when the worker is connected again.");
    }
    if (isConnected) for (const go of this.#waiting.splice(0)) go();
  }

  /** @param {string} name of a tool that waits until the visitor has decided */
  asks(name) {
    setText(this.#about, `${name} waits until you approve or refuse it.`);
  }

  /** @param {Activity} activity */
  show(activity) {
    const { call, phase } = activity;
    if (phase === "started") this.#begin(activity);
    else if (phase === "progress") this.#progress(activity);
    else {
      this.#end(activity);
      this.#running.delete(call);
    }
    this.#host.toggleAttribute("data-busy", this.#running.size > 0);
  }

  /** @param {Stop} stop */
  #at(stop) {
    return /** @type {HTMLElement} */ (this.#host.querySelector(`[data-stop="${stop}"]`));
  }

  /** @param {Activity} activity */
  #begin(activity) {
    const { call, name, owner, client } = activity;
    const text = callText(name, activity.arguments);
    this.#running.set(call, text);
    this.#latest = call;
    setText(this.#text, text);
    setText(this.#about, `${client || "A client"} → ${this.#describeOwner(owner)}`);
    for (const old of this.#lane.querySelectorAll("[data-over]")) old.remove();
    if (this.#trips.size >= MAX_TRIPS) return;
    const label = element("span", { class: "trip", "data-call": call }, cut(text));
    this.#lane.append(label);
    const target = owner === "worker" ? "worker" : "tabs";
    this.#trips.set(call, { label, target, arrived: this.#move(label, "client", target) });
  }

  /** @param {Activity} activity */
  #progress({ call, progress = 0, total }) {
    if (call === this.#latest && this.#isConnected) {
      const share = total ? `${Math.floor((100 * progress) / total)} %` : `at ${progress}`;
      setText(this.#about, `Running, ${share}`);
    }
  }

  /** @param {Activity} activity */
  #end(activity) {
    const { call, name, phase, result, error, ms, client, owner } = activity;
    const text = this.#running.get(call) ?? callText(name, activity.arguments);
    const outcome = phase === "done" ? resultLine(result) : phase === "failed" ? resultLine(error ?? "failed") : "cancelled";
    const number = ++this.#ended;
    const show = () => {
      // The way back of an earlier call may take longer than that of a later one.
      if (number < this.#shown || (call !== this.#latest && this.#running.has(this.#latest))) return;
      this.#latest = call;
      this.#shown = number;
      setText(this.#text, `${text} → ${outcome}`);
      const took = ms === undefined ? "" : `, ${duration(ms)}`;
      setText(this.#about, `${client || "A client"} → ${this.#describeOwner(owner)}${took}`);
    };
    const trip = this.#trips.get(call);
    if (!trip) return void this.#whenConnected(show);
    void this.#goBack(trip, call, outcome, phase, show);
  }

  /**
   * @param {Trip} trip
   * @param {string} call
   * @param {string} outcome
   * @param {Activity["phase"]} phase
   * @param {() => void} show the whole result in words, as soon as the way back begins
   */
  async #goBack({ label, target, arrived }, call, outcome, phase, show) {
    await arrived;
    label.dataset.phase = phase;
    setText(label, cut(outcome));
    if (target === "tabs") await this.#move(label, "tabs", "worker");
    await new Promise((resolve) => this.#whenConnected(() => resolve(undefined)));
    this.#host.removeAttribute("data-cut");
    show();
    await this.#move(label, "worker", "client");
    this.#trips.delete(call);
    label.dataset.over = "";
    await new Promise((resolve) => setTimeout(resolve, SHOWN_MS));
    label.remove();
  }

  /** @param {() => void} go */
  #whenConnected(go) {
    if (this.#isConnected) go();
    else this.#waiting.push(go);
  }

  /** @param {HTMLElement} label @param {Stop} from @param {Stop} to @returns {Promise<unknown>} */
  #move(label, from, to) {
    const [start, end] = [PLACES[from], PLACES[to]];
    place(label, end);
    if (this.#isStill.matches || document.hidden) return Promise.resolve();
    const stops = Math.abs(end - start) / 25;
    // Anchored at the same share of its own width, so that a wide label never leaves the lane.
    const frames = [start, end].map((at) => ({ left: `${at}%`, transform: `translateX(-${at}%)` }));
    return label.animate(frames, { duration: stops * LEG_MS, easing: "ease-in-out" }).finished.catch(() => undefined);
  }
}

/** @param {HTMLElement} label @param {number} at */
function place(label, at) {
  label.style.left = `${at}%`;
  label.style.transform = `translateX(-${at}%)`;
}

/** @param {string} text */
function cut(text) {
  return text.length > LABEL_LENGTH ? `${text.slice(0, LABEL_LENGTH - 1)}…` : text;
}
