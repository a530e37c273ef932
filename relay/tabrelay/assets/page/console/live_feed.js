/**
 * Live stream of the relay's captured calls: connects, reads events, and connects again after a loss.
 *
 * It dispatches an event for each event of the relay (`hello`, `calls`, `sampled`, `status`), with `detail`, and `state` when the
 * connection changes. The relay sends a comment every 15 s, so a stream that is silent for longer is taken as lost. Each
 * connection reads all rows that the relay keeps: a relay that was restarted counts from the beginning. Rows are kept by
 * call_store.js.
 */

import { askRelay } from "/-/client/redeem_code.js";
import { eventMessages } from "../event_stream.js";

const CONNECT_MS = 10_000;
const SILENT_MS = 45_000;
const RETRY_MS = [500, 1000, 2000, 5000];
const TOO_MANY = 429;

/** @typedef {"connecting" | "live" | "lost" | "too_many" | "stopped"} FeedState */

export class LiveFeed extends EventTarget {
  /** @type {FeedState} */
  state = "stopped";
  #running = new AbortController();

  start() {
    if (this.state !== "stopped") return;
    this.#running = new AbortController();
    this.#set("connecting");
    void this.#run(this.#running.signal);
  }

  stop() {
    this.#running.abort();
    this.#set("stopped");
  }

  /** @param {AbortSignal} signal */
  async #run(signal) {
    for (let attempt = 0; !signal.aborted; attempt++) {
      const began = performance.now();
      /** @type {FeedState} */
      let next = "lost";
      try {
        next = await this.#read(signal);
      } catch {
        // The state shows that; status requests have the reason.
      }
      if (signal.aborted) return;
      this.#set(next);
      if (performance.now() - began > SILENT_MS) attempt = 0;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]));
    }
  }

  /** @param {AbortSignal} signal @returns {Promise<FeedState>} */
  async #read(signal) {
    const silent = new AbortController();
    let timer = setTimeout(() => silent.abort(), CONNECT_MS);
    const active = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENT_MS);
    };
    try {
      const answer = await askRelay("/-/console/events?since=0", { signal: AbortSignal.any([signal, silent.signal]) });
      if (!answer.ok || !answer.body) {
        await answer.body?.cancel();
        return answer.status === TOO_MANY ? "too_many" : "lost";
      }
      active();
      this.#set("live");
      /** @type {TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>} */
      const watched = new TransformStream({
        transform(chunk, controller) {
          active();
          controller.enqueue(chunk);
        },
      });
      for await (const event of eventMessages(answer.body.pipeThrough(watched))) {
        if (signal.aborted) break;
        this.dispatchEvent(new CustomEvent(String(event.type), { detail: event }));
      }
      return "lost";
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {FeedState} state */
  #set(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
