/**
 * Modal dialog that asks about a tool call: approve once, for the session or for the token, or refuse.
 *
 * It is in the browser's top layer and in a closed shadow root: the page can't cover it or change its style, and all texts of
 * other programs are text nodes. Only a trusted click or key press decides, and only some time after the dialog appears. Escape
 * refuses. It does not know which calls need approval.
 *
 * @import { Decision } from "../client.js"
 * @typedef {{ title: string, text: string[], lasting: string, details: string }} Dialog
 */

import { append, ENABLE_DELAY_MS } from "./text_elements.js";

const STYLE = `
:host { all: initial !important; display: contents !important; }
dialog {
  box-sizing: border-box; width: min(32rem, calc(100vw - 2rem)); max-height: calc(100vh - 2rem); margin: auto;
  padding: 1.25rem 1.375rem; overflow: auto; border: 2px solid light-dark(#8a5300, #f1bb55); border-radius: 12px;
  color-scheme: light dark; background: light-dark(#ffffff, #161e1b); color: light-dark(#15201c, #e7efeb);
  font: 400 1rem/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; text-align: start;
}
dialog:focus { outline: none; }
dialog::backdrop { background: rgb(0 0 0 / 55%); }
.from { margin: 0 0 0.5rem; font-size: 0.8125rem; color: light-dark(#50605a, #9fb0a9); overflow-wrap: anywhere; }
h2 { margin: 0 0 0.5rem; font-size: 1.25rem; line-height: 1.3; font-weight: 650; overflow-wrap: anywhere; }
p { margin: 0 0 0.5rem; overflow-wrap: anywhere; }
pre {
  margin: 0 0 0.75rem; padding: 0.625rem 0.75rem; max-height: 14rem; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 0.875rem/1.45 ui-monospace, Menlo, Consolas, monospace;
  background: light-dark(#e9eeeb, #1e2824); border-radius: 6px;
}
.actions { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-top: 1rem; }
button {
  font: inherit; padding: 0.5rem 0.875rem; border-radius: 8px; cursor: pointer; flex: 1 1 auto;
  background: transparent; color: inherit; border: 1px solid light-dark(#7d8d86, #6c7d76);
}
button.main { background: light-dark(#0f6f5c, #56d3ae); color: light-dark(#ffffff, #0e1412); border-color: transparent; }
button:disabled { opacity: 0.55; cursor: default; }
:focus-visible { outline: 2px solid light-dark(#1257c4, #8ab8ff); outline-offset: 2px; }
`;

/**
 * @param {string} lasting
 * @returns {[Decision, string, string][]}
 */
const choices = (lasting) => [
  ["once", "Approve once", "main"],
  ["session", lasting, ""],
  ["refuse", "Refuse", ""],
];

/**
 * @param {Dialog} dialog
 * @param {() => number} others how many questions wait
 * @param {(decision: Decision) => void} decide
 * @returns {() => void} removes the dialog
 */
export function showDialog({ title, text, lasting, details }, others, decide) {
  const element = document.createElement("tabrelay-approval");
  const shadow = element.attachShadow({ mode: "closed" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];
  const root = document.createElement("dialog");
  root.setAttribute("role", "alertdialog");
  root.setAttribute("aria-labelledby", "title");
  root.setAttribute("aria-describedby", "about");
  root.tabIndex = -1;
  shadow.append(root);
  const from = append(root, "p", "");
  from.className = "from";
  append(root, "h2", title).id = "title";
  const about = append(root, "div");
  about.id = "about";
  const [question = "", ...rest] = text;
  append(about, "p", question);
  const argumentsBox = append(about, "pre", details);
  argumentsBox.tabIndex = 0;
  argumentsBox.setAttribute("aria-label", "Arguments");
  for (const line of rest) append(about, "p", line);
  const buttons = choices(lasting).map(([decision, label, look]) => choiceButton(label, look, () => decide(decision)));
  const row = append(root, "div");
  row.className = "actions";
  row.append(...buttons);
  const count = setInterval(() => showOrigin(from, others()), 500);
  showOrigin(from, others());

  const isEnabled = enableLater(buttons);
  root.addEventListener("cancel", (event) => {
    event.preventDefault();
    if (event.isTrusted && isEnabled()) decide("refuse");
  });
  // Browsers close a dialog whose cancellation was prevented twice: it is opened again until there is an answer.
  root.addEventListener("close", () => element.isConnected && root.showModal());
  (document.body ?? document.documentElement).append(element);
  root.showModal();
  root.focus();
  return () => {
    clearInterval(count);
    element.remove();
  };
}

/**
 * Enable buttons a moment after they become visible, also when the tab becomes visible later.
 * @param {HTMLButtonElement[]} buttons
 */
function enableLater(buttons) {
  let isEnabled = false;
  const gone = new AbortController();
  const restart = () => {
    isEnabled = false;
    for (const button of buttons) button.disabled = true;
    if (document.hidden) return;
    setTimeout(() => {
      if (!buttons[0]?.isConnected) return gone.abort();
      isEnabled = !document.hidden;
      for (const button of buttons) button.disabled = !isEnabled;
    }, ENABLE_DELAY_MS);
  };
  document.addEventListener("visibilitychange", restart, { signal: gone.signal });
  restart();
  return () => isEnabled;
}

/**
 * @param {string} label
 * @param {string} look
 * @param {() => void} run
 */
function choiceButton(label, look, run) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = look;
  button.textContent = label;
  // Only the user decides: a script of the page could dispatch a click.
  button.addEventListener("click", (event) => event.isTrusted && run());
  return button;
}

/**
 * @param {HTMLElement} place
 * @param {number} others
 */
function showOrigin(place, others) {
  const more = others === 0 ? "" : others === 1 ? " · 1 more waits" : ` · ${others} more wait`;
  const text = `Tabrelay asks on ${location.host || "this page"}${more}`;
  if (place.textContent !== text) place.textContent = text;
}
