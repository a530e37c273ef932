/**
 * Card of one server on the relay's page: state, counters, tools, and how to connect a client.
 *
 * A card is made once and then updated, so that the selected client and selected text survive the next poll. It requests
 * nothing: its buttons call page.js.
 */

import { browserList } from "./browsers.js";
import { clientPanel } from "./clients.js";
import { duration, element, setText } from "./element.js";

/**
 * @typedef {{ name: string, title?: string, description?: string }} Tool
 *
 * @typedef {object} Server one entry of `GET /-/status`
 * @property {string} name
 * @property {"online" | "idle" | "offline"} state
 * @property {number} since_s
 * @property {number | null} last_seen_s
 * @property {string} mcp_url
 * @property {string | null} title
 * @property {Tool[]} tools
 * @property {number} in_flight
 * @property {"connecting" | "connected" | "waiting" | "failed" | "suspended" | "stopped"} [connection] of an upstream
 * @property {number} [attempts] since the last connection
 * @property {number | null} [next_retry_s]
 * @property {string | null} [error] why it is not connected
 * @property {number} calls
 * @property {{ added: string[], removed: string[], changed: string[] } | null} [drift] since the first use
 * @property {{ name: string, why: string }[]} [left_out]
 * @property {{ name: string, why: string }[]} [suspicious]
 * @property {import("./browsers.js").Instance[]} [instances] the browsers that share the name, where several may
 */

/**
 * @typedef {object} CardActions what a card's buttons do
 * @property {(name: string) => void} accept the tools are fine as they are
 * @property {(name: string) => void} reconnect connect to an upstream now
 *
 * @param {string} name
 * @param {CardActions} actions
 */
export function serverCard(name, actions) {
  const { root, badge, presence, callCount, runningCount, toolList, noTools, leftOut, panelHost, ...parts } = makeCard(name);
  const { browsers, warning, drift, fine, trouble, cause, plan, now } = parts;
  fine.addEventListener("click", () => actions.accept(name));
  now.addEventListener("click", () => actions.reconnect(name));
  const panel = clientPanel(panelHost, `MCP clients for ${name}`);
  let drawnTools = "";

  return {
    root,

    /** @param {Server} server @param {string} tokenCommand */
    update(server, tokenCommand) {
      root.dataset.state = server.state;
      badge.className = `badge ${lookOf(server)}`;
      setText(badge, server.state);
      setText(presence, presenceOf(server));
      setText(callCount, String(server.calls));
      setText(runningCount, String(server.in_flight));
      trouble.hidden = server.state === "online" || !server.connection;
      setText(cause, server.error ? sentence(server.error) : "");
      setText(plan, planOf(server));
      warning.hidden = !server.drift;
      setText(drift, server.drift ? driftOf(server.drift) : "");
      leftOut.hidden = !server.left_out?.length && !server.suspicious?.length;
      setText(leftOut, flawsOf(server.left_out ?? [], server.suspicious ?? []));
      panel.update({ name, url: server.mcp_url, tokenCommand });
      browsers.update(server.instances ?? []);
      const next = JSON.stringify(server.tools);
      if (next === drawnTools) return;
      drawnTools = next;
      noTools.hidden = server.tools.length > 0;
      toolList.replaceChildren(...server.tools.map(toolRow));
    },
  };
}

/**
 * The elements of a card, without their texts.
 *
 * @param {string} name
 */
function makeCard(name) {
  const badge = element("span", { class: "badge" });
  const presence = element("p", { class: "presence about" });
  const callCount = element("dd");
  const runningCount = element("dd");
  const toolList = element("ul", { class: "list tools" });
  const noTools = element("p", { class: "empty" }, "None yet.");
  const drift = element("p");
  const fine = element("button", { type: "button", class: "button" }, "Accept these tools");
  const warning = element("div", { class: "drift notice is-warn", role: "status", hidden: true }, drift, fine);
  const cause = element("p", { class: "cause" });
  const plan = element("p", { class: "plan about" });
  const now = element("button", { type: "button", class: "button" }, "Connect now");
  const trouble = element("div", { class: "trouble notice is-warn", hidden: true }, element("div", {}, cause, plan), now);
  const leftOut = element("p", { class: "about left-out", hidden: true });
  const browsers = browserList(name);
  const panelHost = element("div", { id: `connect-${name}` });
  const counters = element(
    "dl",
    {},
    element("div", {}, element("dt", {}, "calls"), callCount),
    element("div", {}, element("dt", {}, "running"), runningCount),
  );
  const title = element("div", { class: "row" }, element("h3", { id: `name-${name}` }, name), badge);
  const root = element(
    "article",
    { class: "card server", "data-server": name, "aria-labelledby": `name-${name}` },
    element("header", {}, element("div", {}, title, presence), counters),
    trouble,
    warning,
    browsers.root,
    element(
      "div",
      { class: "columns" },
      element("div", {}, element("h4", {}, "Tools"), toolList, noTools, leftOut),
      element("div", {}, element("h4", {}, "Connect a client"), panelHost),
    ),
  );
  const columns = { toolList, noTools, leftOut, panelHost };
  return { root, badge, presence, callCount, runningCount, warning, drift, fine, trouble, cause, plan, now, browsers, ...columns };
}

/** @param {Server} server */
function lookOf({ state, connection }) {
  if (state === "online") return "is-ok";
  if (state === "idle") return "is-warn";
  if (connection === "failed" || connection === "suspended") return "is-bad";
  return connection ? "is-warn" : "";
}

/**
 * Connection attempts of the relay to an upstream: how many so far, and what comes next.
 *
 * @param {Server} server
 */
function planOf({ connection, attempts = 0, next_retry_s: next }) {
  const tried = attempts ? `${attempts} ${attempts === 1 ? "attempt" : "attempts"} so far. ` : "";
  if (typeof next === "number") return `${tried}The next one is in ${seconds(Math.max(1, Math.ceil(next)))}.`;
  if (connection === "failed") return `${tried}The next call tries again.`;
  if (connection === "suspended") return "It failed too often. The relay connects again when you press Connect now.";
  return `${tried}The relay is connecting to it.`;
}

/** @param {number} count */
function seconds(count) {
  return count < 120 ? `${count} s` : `${Math.round(count / 60)} min`;
}

/** @param {string} words */
function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?…]$/u.test(text) ? text : `${text}.`;
}

/** @param {Server} server */
function presenceOf({ state, since_s, last_seen_s, title, connection }) {
  const whole = (/** @type {number} */ s) => duration(Math.floor(s) * 1000 || 1000);
  const called = title ? `, ${title}` : "";
  if (state === "online") return `online for ${whole(since_s)}${called}`;
  if (state === "idle") return `no page has been open for ${whole(since_s)}; only its worker answers${called}`;
  const how = connection ? `offline, ${connection}` : "offline";
  if (last_seen_s === null) return `${how}, never connected${called}`;
  return `${how}, last seen ${whole(last_seen_s)} ago${called}`;
}

/** @param {NonNullable<Server["drift"]>} drift */
function driftOf({ changed, added, removed }) {
  const kinds = /** @type {[string, string[]][]} */ ([["changed", changed], ["added", added], ["removed", removed]]);
  const parts = kinds.filter(([, names]) => names.length).map(([what, names]) => `${what}: ${names.join(", ")}`);
  return `Its tools have changed since they were first used. ${parts.join("; ")}.`;
}

/**
 * @param {{ name: string, why: string }[]} leftOut
 * @param {{ name: string, why: string }[]} suspicious
 */
function flawsOf(leftOut, suspicious) {
  const list = (/** @type {{ name: string, why: string }[]} */ flaws) =>
    flaws.map(({ name, why }) => `“${name}” ${why}`).join("; ");
  const parts = [];
  if (leftOut.length) parts.push(`Not offered to clients: ${list(leftOut)}.`);
  if (suspicious.length) parts.push(`Names that look alike: ${list(suspicious)}.`);
  return parts.join(" ");
}

/** @param {Tool} tool */
function toolRow(tool) {
  return element(
    "li",
    { "data-tool": tool.name },
    element("p", { class: "name" }, tool.name),
    tool.description ? element("p", { class: "about" }, tool.description) : null,
  );
}
