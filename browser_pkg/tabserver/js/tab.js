/**
 * This tab: what it is called, what it looks like, and what becomes of it. It knows the browser's page, and nothing of
 * workers and tools.
 *
 * @import { TabInfo } from "./ports.js"
 */

import { hold } from "./wait.js";

const TAB_KEY = "tabrelay.tab";

/**
 * An id that survives a reload, and the Web Lock that says this tab lives.
 *
 * @typedef {{ id: string, lock: string, release: () => void }} Identity
 */

/**
 * @param {string} server
 * @returns {Promise<Identity>}
 */
export async function claimIdentity(server) {
  // A duplicated tab starts with a copy of the session's storage: the lock shows that the id is taken.
  const kept = sessionStorage.getItem(TAB_KEY);
  const identity = (kept && (await claim(server, kept))) || (await claim(server, crypto.randomUUID()));
  if (!identity) throw new Error("The browser does not give out its locks.");
  sessionStorage.setItem(TAB_KEY, identity.id);
  return identity;
}

/**
 * @param {string} server
 * @param {string} id
 * @returns {Promise<Identity | undefined>}
 */
async function claim(server, id) {
  const lock = `tabrelay-tab:${server}:${id}`;
  const release = await hold(lock);
  return release && { id, lock, release };
}

/** @returns {TabInfo} */
export function tabInfo() {
  const { origin, pathname, search } = location; // not the fragment: it may hold a pairing code
  return {
    title: document.title,
    url: origin + pathname + search,
    visible: document.visibilityState === "visible",
    focused: document.hasFocus(),
  };
}

/**
 * Tell what happens to this tab, until `signal` is aborted.
 *
 * @param {AbortSignal} signal
 * @param {object} on
 * @param {(info: TabInfo) => void} on.changed
 * @param {() => void} on.left for good, or into the back/forward cache
 * @param {() => void} on.returned from the back/forward cache
 */
export function watchTab(signal, { changed, left, returned }) {
  const tell = () => changed(tabInfo());
  document.addEventListener("visibilitychange", tell, { signal });
  addEventListener("focus", tell, { signal });
  document.addEventListener("freeze", () => changed({ ...tabInfo(), frozen: true }), { signal });
  document.addEventListener("resume", tell, { signal });
  const titles = new MutationObserver(tell);
  const title = document.querySelector("title");
  if (title) titles.observe(title, { childList: true });
  signal.addEventListener("abort", () => titles.disconnect());
  // A page in the back/forward cache keeps its lock, so it has to say that it left, and that it is back.
  addEventListener("pagehide", left, { signal });
  addEventListener("pageshow", (event) => event.persisted && returned(), { signal });
}
