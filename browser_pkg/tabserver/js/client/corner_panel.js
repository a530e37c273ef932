/**
 * Small panel in the corner of the app's page: a question or a notice for the user, and buttons.
 *
 * All texts are text nodes, never markup, because they come from other programs. The panel is in a shadow root, so that the
 * page's styles do not change it by accident; apps set its style with the custom properties `--tabrelay-…` and with `::part()`.
 * It takes no focus and covers no more than the corner. It does not know what it asks.
 *
 * @typedef {{ label: string, kind?: "main" | "quiet", run: (say: (line: string) => void) => void }} Action `say` shows a line in the panel
 * @typedef {{
 *   title: string,
 *   text: string[],
 *   code?: string,
 *   expires_ms?: number,
 *   details?: { label: string, text: string },
 *   link?: { label: string, href: string },
 *   actions?: Action[],
 *   isAlert?: boolean,
 * }} Panel `expires_ms`: until when the code is valid, in milliseconds since 1970
 */

import { adoptDesign } from "./design_sheet.js";
import { append, ENABLE_DELAY_MS } from "./text_elements.js";

const STYLE = `
:host { all: initial; }
.corner {
  position: fixed; inset: auto 1rem 1rem auto; z-index: 2147483647;
  display: grid; gap: var(--space-3); width: min(25rem, calc(100vw - 2rem)); max-height: calc(100vh - 2rem); overflow: auto;
  font: 400 var(--text-2)/1.5 var(--tabrelay-font, var(--font)); text-align: start;
}
.card {
  display: grid; gap: var(--space-2); padding: var(--space-4); box-shadow: var(--shadow);
  background: var(--tabrelay-background, var(--color-surface)); color: var(--tabrelay-color, var(--color-text));
  border-color: var(--tabrelay-border, var(--color-edge)); border-radius: var(--tabrelay-radius, var(--radius));
}
.from { font-size: var(--text-1); font-weight: 650; }
h2, p { overflow-wrap: anywhere; }
.pairing-code { font: 650 1.75rem/1.3 var(--font-mono); letter-spacing: 0.12em; }
.code pre { max-height: 10rem; }
summary { cursor: pointer; color: var(--tabrelay-accent, var(--color-accent)); font-size: var(--text-1); }
details[open] > summary { margin-bottom: var(--space-2); }
.button { font-family: inherit; }
.button:not(.is-primary), a, .code .copy { color: var(--tabrelay-accent, var(--color-accent)); }
.button.is-primary {
  background: var(--tabrelay-accent, var(--color-accent)); color: var(--tabrelay-accent-color, var(--color-on-accent));
  border-color: transparent;
}
.said:empty { display: none; }
`;

/** @type {HTMLElement | undefined} */
let stack;
/** Panels so far: each heading has its own id. A page that is not secure has no `crypto.randomUUID`. */
let count = 0;
const COPIED_MS = 1600;

/**
 * Show a panel. Returns a function that removes it. With `isAlert`, screen readers announce it at once.
 * @param {Panel} panel
 * @returns {() => void}
 */
export function showPanel({ title, text, code, expires_ms, details, link, actions = [], isAlert = false }) {
  const root = document.createElement("section");
  root.className = "card";
  root.setAttribute("part", "panel");
  root.setAttribute("role", isAlert ? "alert" : "status");
  append(root, "p", "Tabrelay").className = "from";
  const heading = append(root, "h2", title);
  heading.id = `title-${++count}`;
  root.setAttribute("aria-labelledby", heading.id);
  for (const line of text) append(root, "p", line);
  if (code) showCode(root, code);
  if (expires_ms) countDown(root, expires_ms);
  if (details) showCommand(root, details);
  if (link) {
    const anchor = /** @type {HTMLAnchorElement} */ (append(append(root, "p"), "a", link.label));
    anchor.href = link.href;
    anchor.target = "_blank";
    anchor.rel = "noreferrer";
  }
  const said = append(root, "p", "");
  said.className = "said";
  said.setAttribute("role", "status");
  if (actions.length) said.before(buttons(actions, (line) => void (said.textContent = line)));
  host().append(root);
  return () => root.remove();
}

/**
 * @param {Action[]} actions
 * @param {(line: string) => void} say
 */
function buttons(actions, say) {
  const row = document.createElement("div");
  row.className = "row";
  for (const { label, kind = "quiet", run } of actions) {
    const button = /** @type {HTMLButtonElement} */ (append(row, "button", label));
    button.type = "button";
    button.className = kind === "main" ? "button is-primary" : "button";
    button.setAttribute("part", `button ${kind}`);
    button.disabled = true;
    setTimeout(() => (button.disabled = false), ENABLE_DELAY_MS);
    // Only the user decides: a script of the page could dispatch a click.
    button.addEventListener("click", (event) => event.isTrusted && run(say));
  }
  return row;
}

/**
 * @param {HTMLElement} root
 * @param {string} code
 */
function showCode(root, code) {
  const row = append(root, "div");
  row.className = "row";
  const shown = append(row, "p", code);
  shown.className = "pairing-code";
  copyButton(row, "Copy the code", code, shown).className = "button";
}

/**
 * @param {HTMLElement} root
 * @param {{ label: string, text: string }} details
 */
function showCommand(root, { label, text }) {
  const more = append(root, "details");
  append(more, "summary", label);
  const box = append(more, "div");
  box.className = "code";
  box.dataset.language = "shell";
  const shown = append(box, "pre", text);
  shown.tabIndex = 0;
  shown.setAttribute("role", "group");
  shown.setAttribute("aria-label", label);
  copyButton(box, "Copy the command", text, shown).className = "copy";
}

/**
 * @param {HTMLElement} parent
 * @param {string} name for screen readers
 * @param {string} text
 * @param {HTMLElement} shown is selected instead where there is no clipboard
 */
function copyButton(parent, name, text, shown) {
  const button = /** @type {HTMLButtonElement} */ (append(parent, "button", "Copy"));
  button.type = "button";
  button.setAttribute("aria-label", name);
  button.addEventListener("click", async () => {
    const isCopied = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    if (!isCopied) getSelection()?.selectAllChildren(shown);
    button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  });
  return button;
}

/**
 * The remaining time, which screen readers do not announce each second. It ends with the panel.
 *
 * @param {HTMLElement} root
 * @param {number} expires_ms
 */
function countDown(root, expires_ms) {
  const shown = append(root, "p", "");
  shown.className = "hint";
  shown.setAttribute("role", "timer");
  const show = () => {
    const left_s = Math.max(0, Math.ceil((expires_ms - Date.now()) / 1000));
    const clock = `${Math.floor(left_s / 60)}:${String(left_s % 60).padStart(2, "0")}`;
    shown.textContent = left_s ? `The code is valid for ${clock} more minutes.` : "The code has expired.";
  };
  show();
  const timer = setInterval(() => (root.isConnected ? show() : clearInterval(timer)), 1000);
}

/** The container of all panels of the page. */
function host() {
  if (stack?.isConnected) return stack;
  const element = document.createElement("tabrelay-panel");
  const shadow = element.attachShadow({ mode: "open" });
  adoptDesign(shadow, STYLE);
  stack = document.createElement("div");
  stack.className = "corner design-root";
  shadow.append(stack);
  (document.body ?? document.documentElement).append(element);
  return stack;
}
