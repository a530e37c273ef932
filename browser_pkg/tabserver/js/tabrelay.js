// Loader of the relay's modules for an app on another origin. It retries until the relay runs. The app hosts this file: its page
// imports it, and its shared worker runs it. It contains no other code of Tabrelay.

export const RELAY = "http://127.0.0.1:4747";

const scope = /** @type {any} */ (globalThis);
const isThisComputer = (/** @type {string} */ host) => /^((.*\.)?localhost|127(\.\d+){3}|\[::1\])$/.test(host);
const isDeveloped = (/** @type {string} */ host) => isThisComputer(host) ||
  /^([^.:]+|.+\.(test|local|lan|internal)|0\.0\.0\.0|(10|192\.168|172\.(1[6-9]|2\d|3[01]))\..+)$/.test(host);
/** Why the relay's modules do not come: found once for all of them. @type {Promise<string> | undefined} */
let problem;
let retry = () => {};
let blockedBy = "";
scope.document?.addEventListener("securitypolicyviolation", (/** @type {SecurityPolicyViolationEvent} */ event) => {
  if (event.blockedURI.startsWith(RELAY) && event.disposition === "enforce") blockedBy = event.effectiveDirective;
});

/**
 * A module of the relay. The promise resolves when the relay runs, and is never rejected: the app's own code runs in any case. Until
 * then the console has the reason, and so has a panel, on pages of this computer or network; `{ panel: false }` shows none.
 */
export async function load(name = "client.js", { panel = isDeveloped(scope.location.hostname) } = {}) {
  // defence: load again until the relay answers
  for (let attempt = 0; ; attempt++) {
    try {
      if (attempt > 0) await fetch(`${RELAY}/-/healthz`, { cache: "no-store", signal: AbortSignal.timeout(5_000) });
      // Each attempt has another path, because Firefox does not load a module again that failed once.
      const module = await import(`${RELAY}/-/${attempt > 0 ? `retry/${attempt}/` : ""}${name}`);
      scope.document?.querySelector("tabrelay-loader")?.remove();
      return module;
    } catch {
      problem ??= findProblem();
      if (panel && scope.document) showPanel(await problem);
    }
    const pause_ms = attempt < 30 ? 1_000 : 2_000;
    await new Promise((resolve) => {
      retry = () => resolve(undefined);
      if (scope.isSecureContext) setTimeout(retry, pause_ms); // nothing repairs any other page
    });
  }
}

async function findProblem() {
  await new Promise((resolve) => setTimeout(resolve, 100)); // a violation is reported after the request has failed
  const { protocol, hostname } = new URL(RELAY);
  const permission = await scope.navigator.permissions?.query({ name: "local-network-access" }).catch(() => undefined);
  const { origin, hostname: own, port } = scope.location;
  let text = `No relay answers at ${RELAY}. Start it with: tabrelay serve. The page tries again by itself. [TR421]`;
  if (!scope.isSecureContext) text = `${origin} is not a secure address, and browsers give such a page no Web Locks. ` +
    `Serve the page with https, or open it on the computer that serves it: http://localhost:${port || 80} [TR413]`;
  else if (blockedBy) text = `The page's content security policy (${blockedBy}) blocks the relay at ${RELAY}. ` +
    `Add ${RELAY} to script-src, and ${RELAY} and ${RELAY.replace("http", "ws")} to connect-src. [TR417]`;
  else if (scope.location.protocol === "https:" && protocol === "http:" && !isThisComputer(hostname))
    text = `This page came over https, and browsers block its requests to ${RELAY}, which is http. ` +
      "Use a relay on this computer, or give the relay an https address. [TR416]";
  else if (permission?.state === "denied" && !isThisComputer(own)) text = `The browser does not let ${origin} reach the relay at ` +
    `${RELAY}. Open the site's settings (the icon beside the address), allow access to apps on this device, and reload. [TR419]`;
  console.warn(`tabrelay: ${text}`);
  return text;
}

/** @param {string} text */
function showPanel(text) {
  const { document, CSSStyleSheet } = scope;
  if (document.querySelector("tabrelay-loader") || !problem) return;
  const element = document.createElement("tabrelay-loader");
  const root = element.attachShadow({ mode: "open" });
  const style = new CSSStyleSheet();
  style.replaceSync(`:host { all: initial; position: fixed; inset: auto 1rem 1rem auto; z-index: 2147483647; box-sizing: border-box;
    width: min(24rem, calc(100vw - 2rem)); padding: 1rem; border: 1px solid; border-radius: 10px; color-scheme: light dark;
    background: Canvas; color: CanvasText; font: 0.9375rem/1.5 ui-sans-serif, system-ui, sans-serif; overflow-wrap: anywhere; }
    p { margin: 0 0 0.75rem; } button { font: inherit; margin-right: 0.5rem; padding: 0.25rem 0.75rem; cursor: pointer; }`);
  root.adoptedStyleSheets = [style];
  const notice = root.appendChild(document.createElement("p"));
  notice.role = "status";
  notice.textContent = `Tabrelay: ${text}`;
  for (const [label, run] of /** @type {[string, () => void][]} */ ([
    ["Try again", () => retry()],
    ["Hide", () => (element.hidden = true, element.style.display = "none")],
  ])) {
    const button = root.appendChild(document.createElement("button"));
    button.textContent = label;
    button.addEventListener("click", run);
  }
  (document.body ?? document.documentElement).append(element);
}

if (!scope.document) {
  // In the worker: store the tabs that connect before the relay's worker.js is loaded.
  const early = /** @type {Event[]} */ ([]);
  // defence: keep tabs that connect before the relay's code is loaded
  if ("onconnect" in scope) scope.onconnect = (/** @type {Event} */ event) => early.push(event);
  // A page for which this file is the wrong one ends this worker, so that a corrected copy can take its place.
  new BroadcastChannel(`tabrelay-end:${scope.name} ${scope.location.href}`).onmessage = () => scope.close();
  load("worker.js").then(() => early.forEach((event) => scope.onconnect(event)));
}
