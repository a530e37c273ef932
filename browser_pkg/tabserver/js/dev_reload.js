/**
 * Reload of a page when a file of its app has changed, for pages that `tabrelay dev` serves.
 *
 * One tab of the origin receives the changes and passes them to the others, because a browser opens few connections to one host.
 * Python files of the worker are loaded again by the worker, without a reload of the page. It works within a content security policy
 * that allows scripts and connections of the page's own origin; under a stricter one it does nothing.
 */

const EVENTS = "/-/dev/events";
const LOCK = "tabrelay-dev-reload";

const channel = new BroadcastChannel(LOCK);
channel.onmessage = ({ data }) => receive(data);
navigator.locks.request(LOCK, () => new Promise(follow)).catch((error) => {
  console.info(`tabrelay: This page does not reload when its files change (${error}). [TR485]`);
});

/** Never resolves: the lock is held until the tab is closed or loaded again. */
function follow() {
  const events = new EventSource(EVENTS);
  let run = "";
  events.addEventListener("run", ({ data }) => {
    if (run && run !== data) share(null);
    run = data;
  });
  events.addEventListener("changed", ({ data }) => share(JSON.parse(data)));
}

/** @param {string[] | null} paths null: the files may have changed while the relay was not running */
function share(paths) {
  channel.postMessage(paths);
  receive(paths);
}

/** @param {string[] | null} paths */
function receive(paths) {
  if (paths && paths.every(isOfWorker)) return;
  location.reload();
}

/**
 * A Python file belongs to the worker, unless the page itself runs Python (PyScript).
 * @param {string} path
 */
function isOfWorker(path) {
  return path.endsWith(".py") && !document.querySelector('script[type="py"], script[type="mpy"]');
}
