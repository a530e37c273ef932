/**
 * List of the relays that share a bus, on the relay's page.
 *
 * This relay is first. The list is hidden for a relay without a bus. It requests nothing: the console does.
 */

import { byId, duration, element, setText } from "./element.js";

/**
 * @typedef {object} RelayNode
 * @property {string} id
 * @property {boolean} is_this
 * @property {string} [version]
 * @property {number} [port]
 * @property {number} [browsers] that are connected to it
 * @property {number} [in_flight] calls and listeners
 * @property {number} [since] seconds since 1970
 */

export function nodesPanel() {
  const section = byId("nodes", HTMLElement);
  const list = byId("nodes-list", HTMLElement);

  return {
    hide() {
      section.hidden = true;
    },

    /**
     * @param {RelayNode[] | undefined} nodes
     * @param {string} version of this one
     */
    update(nodes, version) {
      section.hidden = !nodes;
      if (!nodes) return;
      while (list.childElementCount > nodes.length) list.lastElementChild?.remove();
      nodes.forEach((node, index) => {
        let row = list.children[index];
        if (!row) {
          row = element("li", {}, element("strong", { class: "mono" }), element("span", { class: "hint" }));
          list.append(row);
        }
        setText(/** @type {HTMLElement} */ (row.children[0]), node.id);
        setText(/** @type {HTMLElement} */ (row.children[1]), about(node, version));
      });
    },
  };
}

/**
 * @param {RelayNode} node
 * @param {string} version
 */
function about(node, version) {
  const parts = node.is_this ? ["this relay"] : [];
  parts.push(`${node.browsers ?? 0} ${node.browsers === 1 ? "browser" : "browsers"}`);
  parts.push(`${node.in_flight ?? 0} running`);
  if (node.since) parts.push(`up for ${duration(Math.max(1, Date.now() - node.since * 1000))}`);
  if (node.version && node.version !== version) parts.push(`version ${node.version}`);
  return parts.join(" · ");
}
