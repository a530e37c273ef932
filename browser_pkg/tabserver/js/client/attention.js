/**
 * Attention for a question in a background tab: a mark in the tab's title, and a notification if the user has allowed them.
 *
 * It asks for no permission: only a page that has it shows notifications. The title returns when the question ends or the tab
 * becomes visible, unless the page has changed it meanwhile.
 */

const MARK = "(!) ";

/**
 * @param {string} text
 * @returns {() => void} ends it; call it when the question ends
 */
export function requestAttention(text) {
  const ended = new AbortController();
  if (!document.hidden) return () => {};
  const marked = MARK + document.title;
  document.title = marked;
  const notification = notify(text);
  const end = () => {
    if (document.title === marked) document.title = marked.slice(MARK.length);
    notification?.close();
    ended.abort();
  };
  const showAgain = () => void (document.hidden || end());
  document.addEventListener("visibilitychange", showAgain, { signal: ended.signal });
  return () => void (ended.signal.aborted || end());
}

/** @param {string} text */
function notify(text) {
  if (typeof Notification === "undefined" || Notification.permission !== "granted") return undefined;
  try {
    const notification = new Notification("Tabrelay", { body: `${text} (${document.location.host})`, tag: "tabrelay-question" });
    notification.addEventListener("click", () => {
      globalThis.focus();
      notification.close();
    });
    return notification;
  } catch {
    // Some mobile browsers allow notifications only to service workers.
    return undefined;
  }
}
