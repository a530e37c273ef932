/**
 * List of the browsers that offer one server, where several may, on the relay's page.
 *
 * Rows are made once and then updated, so that a selected address survives the next poll. It requests nothing: the console does.
 */

import { duration, element, setText } from "./element.js";

/**
 * @typedef {{ id: string, title: string, visible: boolean, url?: string }} Tab
 *
 * @typedef {object} Instance one of several browsers that offer a server, in `GET /-/status`
 * @property {string} id
 * @property {"online" | "idle" | "offline"} state
 * @property {number | null} last_seen_s
 * @property {string} mcp_url
 * @property {string | null} browser
 * @property {Tab[]} tabs
 * @property {import("./console/server_texts.js").Task[]} [tasks]
 * @property {boolean} front
 * @property {number | null} last_used_s
 */

/** @param {string} server */
export function browserList(server) {
  const root = element("ul", { class: "browsers list", "aria-label": `Browsers that offer ${server}`, hidden: true });
  /** @type {Map<string, ReturnType<typeof browserRow>>} */
  let rows = new Map();
  return {
    root,

    /** @param {Instance[]} instances */
    update(instances) {
      root.hidden = instances.length === 0;
      const next = new Map(instances.map(({ id }) => [id, rows.get(id) ?? browserRow(id)]));
      if ([...next.keys()].join() !== [...rows.keys()].join()) {
        root.replaceChildren(...[...next.values()].map((row) => row.root));
      }
      rows = next;
      for (const instance of instances) rows.get(instance.id)?.update(instance);
    },
  };
}

/** @param {string} id */
function browserRow(id) {
  const badge = element("span", { class: "badge" });
  const front = element("span", { class: "front badge" }, "in front");
  const about = element("p", { class: "about" });
  const titles = element("p", { class: "titles about" });
  const address = element("code", { class: "about" });
  const name = element("p", { class: "row" }, element("span", { class: "name" }, `~${id}`), badge, front);
  return {
    root: element("li", { "data-instance": id }, name, about, titles, address),

    /** @param {Instance} instance */
    update(instance) {
      badge.className = `badge ${{ online: "is-ok", idle: "is-warn", offline: "" }[instance.state]}`;
      setText(badge, instance.state);
      front.hidden = !instance.front;
      setText(about, describe(instance));
      setText(titles, instance.tabs.map(({ title }) => title || "Untitled").join(" · "));
      setText(address, instance.mcp_url);
    },
  };
}

/** @param {Instance} instance */
function describe({ state, last_seen_s, browser, tabs, last_used_s }) {
  const whole = (/** @type {number} */ s) => duration(Math.floor(s) * 1000 || 1000);
  const parts = state === "offline" ? [`last seen ${whole(last_seen_s ?? 0)} ago`] : [];
  if (browser) parts.push(browser);
  if (state !== "offline") parts.push(tabs.length === 1 ? "1 tab" : `${tabs.length} tabs`);
  if (last_used_s !== null) parts.push(`used ${whole(last_used_s)} ago`);
  return parts.join(", ");
}
