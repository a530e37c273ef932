/**
 * Identity and lifecycle of this tab: its id, title, visibility, and where it navigates to.
 *
 * A tab keeps its id over reloads and navigations within the origin; a Web Lock guarantees that no two tabs use one id. It reads
 * the document and the browser's events, and does not know workers or tools.
 *
 * @import { TabInfo } from "../ports.js"
 */

import { holdLock } from "./locks.js";

const TAB_KEY = "tabrelay.tab";
// Characters; the worker and the relay accept no longer id (MAX_TAB_ID in wire/control_messages.py).
const MAX_ID = 64;
const BROWSER_KEY = "tabrelay.browser";
// How long to wait for an id that another page holds. After a reload that is the previous page, which is about to end.
const RELOAD_CLAIM_MS = 2_000;
const CLAIM_MS = 250;
// A navigation that has not left the page after this time has been abandoned.
const NAVIGATION_MS = 30_000;

/**
 * A document has one id, even with several copies of this file and several connections.
 * @typedef {{ id?: string, claim?: Promise<string> }} Shared
 */
const shared = /** @type {Shared} */ (/** @type {any} */ (globalThis)[Symbol.for("tabrelay.tab")] ??= {});

/**
 * This tab's id: the same after a reload, and after a navigation to another page of this origin and back.
 *
 * It is in sessionStorage, which browsers copy to a duplicated tab and to a window that a page opens. So the page that uses an id
 * holds a Web Lock of that name; a page that does not get the lock is a copy and takes a new id.
 * @returns {Promise<string>}
 */
export function claimTab() {
  shared.claim ??= findId();
  return shared.claim;
}

async function findId() {
  // A page that had an id comes out of the back/forward cache: its own id, not the stored one.
  const stored = shared.id ?? storage()?.getItem(storageKey());
  const usable = stored && stored.length <= MAX_ID ? stored : undefined;
  const release = usable && (await holdLock(lockName(usable), lockWait_ms()));
  const id = release ? usable : crypto.randomUUID().slice(0, 8);
  const releaseLock = release || (await holdLock(lockName(id)));
  shared.id = id;
  storage()?.setItem(storageKey(), id);
  // In the back/forward cache a page holds no lock: the tab's next page has the same id, and browsers evict a cached page whose
  // lock another page requests.
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
 * This browser's id, for servers that several browsers offer: the same for all tabs of the origin, and after restarts.
 * Empty where the page may not use storage: then each worker counts as a separate browser.
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

/** Undefined if the page may not use storage: its id then lasts as long as the page. */
function storage() {
  try {
    return sessionStorage;
  } catch {
    return undefined;
  }
}

/** A frame shares the storage of its parent page, but is another tab to the worker: its key contains its position. */
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
 * The Web Lock that this page holds as long as it lives: the worker waits for it.
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
  if (!release) throw new Error("The browser refuses Web Locks.");
  return { lock, release };
}

/** @returns {TabInfo} */
export function tabInfo() {
  const { origin, pathname, search } = location; // not the fragment: it may contain a pairing code
  return {
    title: document.title,
    url: origin + pathname + search,
    visible: document.visibilityState === "visible",
    focused: document.hasFocus(),
  };
}

/**
 * Report what happens to this tab, until `signal` is aborted.
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
  // A page in the back/forward cache keeps its page lock, so it has to report that it was left, and that it is back.
  addEventListener("pagehide", () => left(nextPage()), { signal });
  addEventListener("pageshow", (event) => event.persisted && returned(), { signal });
}

/**
 * The next page after a navigation: one of this origin, possibly the same; one of another origin; or unknown. A browser reports
 * links, forms and scripts, but not its own buttons: a closed tab and a reloaded one look the same.
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
  // The Navigation API is not in all browsers, and has no TypeScript types yet.
  const navigation = /** @type {EventTarget | undefined} */ (/** @type {any} */ (globalThis).navigation);
  navigation?.addEventListener("navigate", (event) => {
    const { destination, downloadRequest } = /** @type {any} */ (event);
    if (destination.sameDocument || typeof downloadRequest === "string" || !/^https?:/.test(destination.url)) return;
    next = new URL(destination.url).origin === location.origin ? "same_origin" : "other_origin";
    since = performance.now();
  }, { signal });
  return () => {
    const known = performance.now() - since < NAVIGATION_MS ? next : "unknown";
    next = "unknown"; // a page that returns from the cache may navigate to another place
    return known;
  };
}
