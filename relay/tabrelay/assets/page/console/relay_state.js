/**
 * Notice about the relay itself: running, down, not paired, not the user's relay; and the state of the live stream.
 *
 * It draws what it is given. While all is well it is one line.
 */

import { command } from "../clients.js";
import { byId, setText } from "../element.js";

/** @typedef {{ look: "ok" | "bad", state: string, title: string, text: string, command?: string | undefined }} Notice */

/** @type {Record<import("./live_feed.js").FeedState, string>} */
const FEED = {
  connecting: "connecting",
  live: "live",
  lost: "connecting again",
  too_many: "too many consoles are open",
  stopped: "paused",
};

/** @param {Notice} notice */
export function showNotice(notice) {
  const section = byId("relay", HTMLElement);
  section.dataset.state = notice.state;
  section.className = notice.look === "ok" ? "relay-line" : "notice is-bad";
  setText(byId("relay-title", HTMLElement), notice.title);
  setText(byId("relay-text", HTMLElement), notice.text);
  const todo = byId("relay-todo", HTMLElement);
  todo.hidden = !notice.command;
  if (notice.command && todo.querySelector("code")?.textContent !== notice.command) todo.replaceChildren(command(notice.command));
}

/** @param {import("./live_feed.js").FeedState} state */
export function showFeed(state) {
  const badge = byId("feed", HTMLElement);
  badge.dataset.feed = state;
  badge.className = `badge ${state === "live" ? "is-ok" : state === "stopped" ? "" : "is-warn"}`;
  setText(badge, FEED[state]);
}
