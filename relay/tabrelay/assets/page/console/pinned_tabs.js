/**
 * Tabs that a person has pinned in this page: the console's calls of a server go to its pinned tab, unless another one is chosen.
 *
 * Calls of clients are not affected. The pins end with the page.
 */

/** @type {Map<string, string>} */
const pins = new Map();

/** @param {string} server @returns {string} id of its pinned tab; empty without one */
export function pinnedTab(server) {
  return pins.get(server) ?? "";
}

/** @param {string} server @param {string} tab empty: none */
export function pinTab(server, tab) {
  if (tab) pins.set(server, tab);
  else pins.delete(server);
}
