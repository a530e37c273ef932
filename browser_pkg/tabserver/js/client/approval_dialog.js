/**
 * Modal dialog that asks about a tool call: approve once, for the session or for the token, or refuse.
 *
 * It is in the browser's top layer and in a closed shadow root: the page can't cover it or change its style, and all texts of
 * other programs are text nodes. Only a trusted click or key press decides, and only some time after the dialog appears. Refuse
 * is the default: it has the focus, and Escape refuses too. It does not know which calls need approval.
 *
 * @import { Decision } from "../client.js"
 * @typedef {{ title: string, text: string[], warning: string, lasting: string, details: string }} Dialog
 */

import { adoptDesign } from "./design_sheet.js";
import { append, ENABLE_DELAY_MS } from "./text_elements.js";

const STYLE = `
:host { all: initial !important; display: contents !important; }
.dialog { border: 2px solid var(--color-warn); }
.dialog:focus { outline: none; }
.from { color: var(--color-muted); font-size: var(--text-1); overflow-wrap: anywhere; }
.warning { color: var(--color-warn); font-weight: 600; }
.code { padding-top: var(--space-2); }
.code h3 { padding-inline: var(--space-3); font-size: var(--text-1); color: var(--color-muted); }
.code pre { max-height: 12rem; padding-right: var(--space-3); padding-top: var(--space-2); white-space: pre-wrap; overflow-wrap: anywhere; }
.row .button { flex: 1 1 auto; }
`;

/**
 * @param {string} lasting
 * @returns {[Decision, string, string][]}
 */
const choices = (lasting) => [
  ["refuse", "Refuse", "button is-primary"],
  ["once", "Approve once", "button"],
  ["session", lasting, "button"],
];

/**
 * @param {Dialog} dialog
 * @param {() => number} others how many questions wait
 * @param {(decision: Decision) => void} decide
 * @returns {() => void} removes the dialog
 */
export function showDialog({ title, text, warning, lasting, details }, others, decide) {
  const element = document.createElement("tabrelay-approval");
  const shadow = element.attachShadow({ mode: "closed" });
  adoptDesign(shadow, STYLE);
  const root = document.createElement("dialog");
  root.setAttribute("role", "alertdialog");
  root.setAttribute("aria-labelledby", "title");
  root.setAttribute("aria-describedby", "about");
  root.className = "dialog design-root";
  shadow.append(root);
  const content = append(root, "div");
  content.className = "stack";
  const from = append(content, "p", "");
  from.className = "from";
  append(content, "h2", title).id = "title";
  const about = append(content, "div");
  about.className = "stack";
  about.id = "about";
  for (const line of text) append(about, "p", line);
  if (warning) append(about, "p", warning).className = "warning";
  showArguments(content, details);
  const buttons = choices(lasting).map(([decision, label, look]) => choiceButton(label, look, () => decide(decision)));
  const row = append(content, "div");
  row.className = "row";
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
  // Refuse: Enter must not approve what the user has not read.
  buttons[0]?.focus();
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
    for (const button of buttons) setEnabled(button, false);
    if (document.hidden) return;
    setTimeout(() => {
      if (!buttons[0]?.isConnected) return gone.abort();
      isEnabled = !document.hidden;
      for (const button of buttons) setEnabled(button, isEnabled);
    }, ENABLE_DELAY_MS);
  };
  document.addEventListener("visibilitychange", restart, { signal: gone.signal });
  restart();
  return () => isEnabled;
}

/**
 * A button that is not enabled yet keeps the focus, which the attribute `disabled` would take away.
 *
 * @param {HTMLButtonElement} button
 * @param {boolean} isEnabled
 */
function setEnabled(button, isEnabled) {
  button.ariaDisabled = isEnabled ? null : "true";
}

/**
 * @param {HTMLElement} place
 * @param {string} details JSON
 */
function showArguments(place, details) {
  const box = append(place, "div");
  box.className = "code";
  const heading = append(box, "h3", "Arguments");
  heading.id = "arguments";
  const json = append(box, "pre", details);
  json.tabIndex = 0;
  json.setAttribute("role", "group");
  json.setAttribute("aria-labelledby", heading.id);
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
  // defence: approval buttons that work at once
  button.addEventListener("click", (event) => event.isTrusted && button.ariaDisabled !== "true" && run());
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
