/**
 * State of the console in the address: filter, open drawer, part of the drawer, lanes. Links to it open the same view.
 *
 * The address is replaced, so the history has one entry for the console. Values that are empty are left out.
 */

const WRITE_DELAY_MS = 150;

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
const params = new URLSearchParams(location.search);

/** @param {string} name */
export function urlValue(name) {
  return params.get(name) ?? "";
}

/** @param {Record<string, string>} values */
export function setUrlValues(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value) params.set(name, value);
    else params.delete(name);
  }
  // Browsers limit how often a page may replace its address.
  clearTimeout(timer);
  timer = setTimeout(() => {
    const query = params.toString();
    history.replaceState(history.state, "", location.pathname + (query ? `?${query}` : "") + location.hash);
  }, WRITE_DELAY_MS);
}
