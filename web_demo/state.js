/**
 * Texts for connection states on the demo page: lamp, title, meaning, and what to do.
 *
 * Pure functions: a state in, a notice out. It does not touch the document, so every text can be read and tested in one place.
 */

import { sibling, startCommand } from "/-/page/clients.js";

/**
 * @typedef {import("/-/client.js").State} StateMessage
 * @typedef {import("/-/client.js").Boot} BootMessage
 *
 * @typedef {object} Notice
 * @property {"clear" | "caution" | "stop" | "dark"} lamp
 * @property {string} title
 * @property {string} text
 * @property {string} [todo] what the command below is for
 * @property {string} [command]
 * @property {"retry" | "take" | "reload"} [action]
 * @property {boolean} [hasDetail] whether the worker's message adds something to this text
 *
 * @typedef {{ origin: string, tokenCommand: string, server: string }} Place
 */

/**
 * @param {StateMessage} state
 * @param {Place} place
 * @returns {Notice}
 */
export function noticeOf(state, place) {
  if (state.state === "connected" && state.why === "version") {
    return {
      lamp: "clear",
      title: "Connected, and a new version is there",
      text: "The relay was upgraded while this page was open. Both still work together. Reload to use the new version.",
      action: "reload",
    };
  }
  if (state.state === "connected") {
    return {
      lamp: "clear",
      title: "Connected",
      text: `MCP clients reach this browser as “${place.server}” while one of its tabs is open.`,
    };
  }
  if (state.why === "version") {
    return {
      lamp: "dark",
      title: "Another tab has the new version",
      text: "The relay was upgraded, and a tab with the new version has the connection. Reload this one too.",
      action: "reload",
    };
  }
  const known = state.why && REASONS[state.why];
  // The message of a page without any pairing only repeats what the notice says.
  if (known) return state.code === "not_paired" ? { ...known(place), hasDetail: false } : known(place);
  if (state.state === "connecting") {
    return { lamp: "caution", title: "Connecting", text: `The worker connects to the relay at ${place.origin}.` };
  }
  return {
    lamp: state.state === "stopped" ? "stop" : "caution",
    title: "Not connected",
    text: "The relay cannot be reached at the moment.",
    action: "retry",
    hasDetail: true,
  };
}

/**
 * @param {BootMessage} boot
 * @returns {Notice}
 */
export function bootNotice(boot) {
  return boot.stage === "download"
    ? {
        lamp: "caution",
        title: "Loading Python",
        text: "The first visit loads Python from the relay on your computer: about 7 MB. The browser keeps it.",
      }
    : { lamp: "caution", title: "Starting Python", text: "The worker that serves all tabs of this browser starts." };
}

/** @type {Record<NonNullable<StateMessage["why"]>, (place: Place) => Notice>} */
const REASONS = {
  relay_down: ({ origin, tokenCommand }) => ({
    lamp: "stop",
    title: "The relay is not running",
    text: `Nothing answers at ${origin}. Start it, and this page connects by itself.`,
    todo: "In a terminal",
    command: startCommand(tokenCommand, "demo", origin),
    action: "retry",
  }),
  blocked: ({ origin }) => ({
    lamp: "stop",
    title: "The browser blocks the relay",
    text: `This page may not reach ${origin}, which is on this computer. Allow it in the site’s settings, then try again.`,
    action: "retry",
    hasDetail: true,
  }),
  not_paired: ({ tokenCommand }) => ({
    lamp: "stop",
    title: "This page is not paired",
    text: "The relay accepts only pages that were opened with a pairing link. A link works once and for a short time.",
    todo: "Get a new link in a terminal, and open it in this browser",
    command: sibling(tokenCommand, "pair"),
    hasDetail: true,
  }),
  pairing: () => ({
    lamp: "caution",
    title: "This page waits for your approval",
    text: "Compare the code with the one that the relay shows, in its terminal or on its page.",
    hasDetail: true,
  }),
  unauthorized: ({ tokenCommand }) => ({
    lamp: "stop",
    title: "The relay does not accept this page any more",
    text: "It refused the key of this page: the pairing was revoked, or the relay has another state directory. Pair the page again.",
    todo: "Get a new link in a terminal, and open it in this browser",
    command: sibling(tokenCommand, "pair"),
    hasDetail: true,
  }),
  unproven: ({ origin }) => ({
    lamp: "stop",
    title: "Another program has the relay’s port",
    text: `What answers at ${origin} could not prove that it is your relay. Stop it and start the relay. This page connects again.`,
    action: "retry",
    hasDetail: true,
  }),
  forbidden: ({ origin, tokenCommand }) => ({
    lamp: "stop",
    title: "The relay refuses this address",
    text: `It accepts no pages of ${origin}, or not for this server. Open the page at the address that the relay prints.`,
    todo: "Get a link that fits",
    command: sibling(tokenCommand, "pair"),
    hasDetail: true,
  }),
  replaced: ({ server }) => ({
    lamp: "dark",
    title: `Another browser now offers “${server}”`,
    text: "MCP clients reach that browser or profile. Press Take over, and they reach this one.",
    action: "take",
  }),
  taken: ({ server }) => ({
    lamp: "caution",
    title: `Another page holds “${server}”`,
    text: "It is of another origin, or has another token. This page tries again by itself and gets the name when that page is closed.",
    action: "retry",
  }),
  version: () => ({
    lamp: "stop",
    title: "This page is out of date",
    text: "The relay was upgraded and needs another version of this page. Reload it.",
    action: "reload",
    hasDetail: true,
  }),
  timeout: ({ origin }) => ({
    lamp: "caution",
    title: "The relay does not answer",
    text: `${origin} accepted the connection and did not answer in time. It may be busy.`,
    action: "retry",
  }),
  restarting: () => ({
    lamp: "caution",
    title: "The relay is restarting",
    text: "It has finished its calls. This page connects again by itself.",
    action: "retry",
  }),
  lost: () => ({
    lamp: "caution",
    title: "The connection was lost",
    text: "The worker connects again by itself. Running calls continue.",
    action: "retry",
  }),
  closed: () => ({
    lamp: "dark",
    title: "Disconnected",
    text: "This page closed its connection. It offers no tools now.",
    action: "retry",
  }),
  boot_failed: () => ({
    lamp: "stop",
    title: "The worker could not start",
    text: "Python did not start in this browser, so the page offers no tools.",
    action: "reload",
    hasDetail: true,
  }),
  misconfigured: () => ({
    lamp: "stop",
    title: "This page passes wrong options",
    text: "An option of its connect() call is missing or wrong.",
    hasDetail: true,
  }),
  unsupported: () => ({
    lamp: "stop",
    title: "This browser lacks something",
    text: "Tabrelay needs Web Locks and workers. Current Chrome, Edge, Firefox and Safari have them.",
    hasDetail: true,
  }),
};

/** @type {Record<NonNullable<Notice["action"]>, string>} */
export const ACTIONS = { retry: "Try now", take: "Take over", reload: "Reload" };
