/**
 * View of one server in the drawer: trouble, drift, and its parts: tools, resources, prompts, tabs, clients, how to connect.
 *
 * The head is updated with each status; parts are made when they are chosen. Lists with schemas come from the server itself, as a
 * client of the present version gets them; without them, the names of the status are shown. Buttons call its owner.
 */

import { browserList } from "../browsers.js";
import { element, setText } from "../element.js";
import { connectPart } from "./connect_part.js";
import { driftView } from "./drift_view.js";
import { flawsOf, planOf, presenceOf, sentence, stateLook } from "./server_texts.js";
import { tabStrip } from "./tab_strip.js";

/**
 * @typedef {import("./server_texts.js").Server} Server
 *
 * @typedef {object} ServerActions
 * @property {(name: string) => void} accept the tools are fine as they are
 * @property {(name: string) => Promise<import("./drift_view.js").ChangedTools>} changedTools
 * @property {(name: string) => void} reconnect connect to an upstream now
 * @property {(filter: string) => void} filter show calls
 * @property {(server: Server, updates: EventTarget) => import("./tab_strip.js").Part[]} parts further parts of the drawer, before
 *   `connect`; `updates` dispatches "update" with each new status of the server
 * @property {(part: string) => void} chosen
 */

/**
 * @param {HTMLElement} place
 * @param {Server} first
 * @param {string} tokenCommand
 * @param {string} part that is open
 * @param {ServerActions} actions
 */
export function serverView(place, first, tokenCommand, part, actions) {
  const { name } = first;
  const badge = element("span", { class: "badge" });
  const presence = element("p", { class: "presence about" });
  const drift = element("div", { class: "drift notice is-warn stack is-close", role: "status", hidden: true });
  const cause = element("p", { class: "cause" });
  const plan = element("p", { class: "plan about" });
  const now = element("button", { type: "button", class: "button" }, "Connect now");
  const trouble = element("div", { class: "trouble notice is-warn", hidden: true }, element("div", {}, cause, plan), now);
  const leftOut = element("p", { class: "about left-out", hidden: true });
  const browsers = browserList(name);
  const show = element("button", { type: "button", class: "button is-small" }, "Show its calls");
  const address = element("code", { class: "about address" });
  show.addEventListener("click", () => actions.filter(`server:${name}`));
  now.addEventListener("click", () => actions.reconnect(name));
  const updates = new EventTarget();
  const parts = [
    ...actions.parts(first, updates),
    { id: "connect", label: "Connect", make: () => connectPart({ name, url: first.mcp_url, tokenCommand }) },
  ];
  let drawnDrift = "";
  const strip = tabStrip(`Parts of ${name}`, parts, { chosen: part, onChoice: actions.chosen });
  place.replaceChildren(
    element(
      "article",
      { class: "server stack", "data-details": name, "aria-label": name },
      element("div", { class: "row" }, badge, presence, show),
      address,
      trouble,
      drift,
      leftOut,
      browsers.root,
      strip.root,
    ),
  );

  return {
    choose: strip.choose,
    /** @param {Server} server */
    update(server) {
      badge.className = `badge ${stateLook(server)}`;
      setText(badge, server.state);
      setText(presence, presenceOf(server) + (server.stale ? ". Its lists may be out of date" : ""));
      setText(address, server.mcp_url);
      trouble.hidden = server.state === "online" || !server.connection;
      setText(cause, server.error ? sentence(server.error) : "");
      setText(plan, planOf(server));
      leftOut.hidden = !server.left_out?.length && !server.suspicious?.length;
      setText(leftOut, flawsOf(server.left_out ?? [], server.suspicious ?? []));
      browsers.update(server.instances ?? []);
      updates.dispatchEvent(new CustomEvent("update", { detail: server }));
      const next = JSON.stringify(server.drift ? [server.drift, server.tools] : null);
      if (next !== drawnDrift) {
        drawnDrift = next;
        drift.hidden = !server.drift;
        drift.replaceChildren(...(server.drift ? driftView(server.drift, () => actions.accept(name), () => actions.changedTools(name)) : []));
      }
    },
  };
}
