/**
 * Description of this tab for the demo page: its id, and whether it receives the calls when several tabs could.
 *
 * A pure function of the catalogue. It does not choose the tab: the worker does.
 */

/**
 * @typedef {import("/-/client.js").CatalogueEntry} Entry
 *
 * @param {Entry[]} tools what all tabs and the worker offer: each with the tab that would be called now
 * @param {string} id this tab
 * @param {boolean} isConnected whether the relay can be reached: no call comes otherwise, to any tab
 */
export function describeTab(tools, id, isConnected) {
  const others = new Map();
  for (const { owner, tab } of tools) if (owner !== "worker" && owner !== id) others.set(owner, tab?.title || "untitled");
  const isTarget = tools.some(({ owner }) => owner === id);
  const [other] = others;
  if (!isConnected) {
    const text = `This tab is ${id}. No calls come while there is no connection.`;
    return { isTarget: false, short: "this one", text };
  }
  if (isTarget || !other) {
    const rest = others.size ? " Other tabs offer what it does not have." : "";
    return { isTarget, short: "this one", text: `This tab is ${id}. Calls of its tools come here.${rest}` };
  }
  const text = `This tab is ${id}. You used the tab ${other[0]} (“${other[1]}”) last, so calls go there.`;
  return { isTarget, short: `another, ${other[0]}`, text };
}
