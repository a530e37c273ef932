/**
 * This tab: what it is called, what it looks like, and what becomes of it. It knows the browser's page, and nothing of
 * workers and tools.
 *
 * @import { TabInfo } from "../ports.js"
 */

import { holdLock } from "./locks.js";

const TAB_KEY = "tabrelay.tab";
// Characters; the worker and the relay take no longer id (MAX_TAB_ID in wire/notes.py).
const MAX_ID = 64;
const BROWSER_KEY = "tabrelay.browser";
// How long an id that somebody holds is waited for. After a reload that is the page before, which is on its way out.
const RELOAD_CLAIM_MS = 2_000;
const CLAIM_MS = 250;
// A navigation that has not begun another page by then has come to nothing.
const NAVIGATION_MS = 30_000;

/**
 * The id is the document's, whichever copies of this file and however many connections it has.
 * @typedef {{ id?: string, claim?: Promise<string> }} Shared
 */
const shared = /** @type {Shared} */ (/** @type {any} */ (globalThis)[Symbol.for("tabrelay.tab")] ??= {});

/**
 * This tab's id: the same after a reload, after a step to another page of this origin and back again.
 *
 * It is in the session's storage, of which a duplicated tab and a window that a page opens get a copy. So whoever uses
 * an id holds a Web Lock of that name; who does not get the lock is somebody else and takes a new id.
 * @returns {Promise<string>}
 */
export function claimTab() {
  shared.claim ??= findId();
  return shared.claim;
}

async function findId() {
  // Not the stored one if this page had one before: it comes out of the back/forward cache.
  const stored = shared.id ?? storage()?.getItem(storageKey());
  const usable = stored && stored.length <= MAX_ID ? stored : undefined;
  const release = usable && (await holdLock(lockName(usable), lockWait_ms()));
  const id = release ? usable : crypto.randomUUID().slice(0, 8);
  const releaseLock = release || (await holdLock(lockName(id)));
  shared.id = id;
  storage()?.setItem(storageKey(), id);
  // In the back/forward cache it keeps no lock: the tab's next page has the same id, and the cache keeps no page whose
  // locks another one wants.
  addEventListener("pagehide", () => {
    shared.claim = undefined;
    releaseLock?.();
  }, { once: true });
  return id;
}

/** @param {string} id */
function lockName(id) {
  return `tabrelay-tab:${id}`;
}

function lockWait_ms() {
  const [navigation] = performance.getEntriesByType("navigation");
  const { type } = /** @type {PerformanceNavigationTiming} */ (navigation ?? {});
  return type === "reload" ? RELOAD_CLAIM_MS : CLAIM_MS;
}

/**
 * This browser's id, for servers that several browsers offer: the same for all tabs of the origin, and over restarts.
 * Empty where nothing can be kept: then each worker is a browser of its own.
 */
export function browserId() {
  try {
    const id = localStorage.getItem(BROWSER_KEY) ?? crypto.randomUUID().slice(0, 8);
    localStorage.setItem(BROWSER_KEY, id);
    return id;
  } catch {
    return "";
  }
}

/** A page may be forbidden to store anything; then its id lives as long as it does. */
function storage() {
  try {
    return sessionStorage;
  } catch {
    return undefined;
  }
}

/** A frame shares the storage of the page around it, but is none of it. */
function storageKey() {
  let key = TAB_KEY;
  for (let frame = /** @type {Window} */ (window); frame !== frame.parent; frame = frame.parent) {
    let index = 0;
    while (frame.parent[index] !== frame) index++;
    key += `.${index}`;
  }
  return key;
}

/**
 * The Web Lock that says this page lives: the worker waits for it.
 *
 * @typedef {{ lock: string, release: () => void }} PageLock
 */

/**
 * @param {string} server
 * @returns {Promise<PageLock>}
 */
export async function holdPageLock(server) {
  const lock = `tabrelay-page:${server}:${crypto.randomUUID()}`;
  const release = await holdLock(lock);
  if (!release) throw new Error("The browser does not give out its locks.");
  return { lock, release };
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
 * @param {(next: NextPage) => void} on.left for good, or into the back/forward cache
 * @param {() => void} on.returned from the back/forward cache
 */
export function watchTab(signal, { changed, left, returned }) {
  const report = () => changed(tabInfo());
  document.addEventListener("visibilitychange", report, { signal });
  addEventListener("focus", report, { signal });
  document.addEventListener("freeze", () => changed({ ...tabInfo(), frozen: true }), { signal });
  document.addEventListener("resume", report, { signal });
  const titles = new MutationObserver(report);
  const title = document.querySelector("title");
  if (title) titles.observe(title, { childList: true });
  signal.addEventListener("abort", () => titles.disconnect());
  const nextPage = watchNavigation(signal);
  // A page in the back/forward cache keeps its lock, so it has to say that it left, and that it is back.
  addEventListener("pagehide", () => left(nextPage()), { signal });
  addEventListener("pageshow", (event) => event.persisted && returned(), { signal });
}

/**
 * Where a page goes that is left: to another page of this origin, or itself again; elsewhere; or nobody knows. A browser
 * tells of links, forms and scripts, but not of its own buttons: closed and reloaded look the same then.
 *
 * @typedef {"same_origin" | "other_origin" | "unknown"} NextPage
 *
 * @param {AbortSignal} signal
 * @returns {() => NextPage}
 */
function watchNavigation(signal) {
  /** @type {NextPage} */
  let next = "unknown";
  let since = 0;
  // Not all browsers have it, and TypeScript does not know it.
  const navigation = /** @type {EventTarget | undefined} */ (/** @type {any} */ (globalThis).navigation);
  navigation?.addEventListener("navigate", (event) => {
    const { destination, downloadRequest } = /** @type {any} */ (event);
    if (destination.sameDocument || typeof downloadRequest === "string" || !/^https?:/.test(destination.url)) return;
    next = new URL(destination.url).origin === location.origin ? "same_origin" : "other_origin";
    since = performance.now();
  }, { signal });
  return () => {
    const known = performance.now() - since < NAVIGATION_MS ? next : "unknown";
    next = "unknown"; // a page that comes back out of the cache may leave another way
    return known;
  };
}
