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
 *   details?: { label: string, text: string },
 *   link?: { label: string, href: string },
 *   actions?: Action[],
 *   isAlert?: boolean,
 * }} Panel
 */

import { append, ENABLE_DELAY_MS } from "./text_elements.js";

const STYLE = `
:host { all: initial; }
.stack {
  position: fixed; inset: auto 1rem 1rem auto; z-index: 2147483647;
  display: grid; gap: 0.75rem; width: min(24rem, calc(100vw - 2rem)); max-height: calc(100vh - 2rem); overflow: auto;
  font: 400 0.9375rem/1.5 var(--tabrelay-font, ui-sans-serif, system-ui, sans-serif);
  color-scheme: light dark;
}
section {
  background: var(--tabrelay-background, light-dark(#ffffff, #161e1b));
  color: var(--tabrelay-color, light-dark(#15201c, #e7efeb));
  border: 1px solid var(--tabrelay-border, light-dark(#7d8d86, #6c7d76));
  border-radius: var(--tabrelay-radius, 10px);
  box-shadow: 0 8px 28px -12px rgb(0 0 0 / 45%);
  padding: 1rem 1.125rem;
}
.from { margin: 0 0 0.25rem; font-size: 0.8125rem; color: light-dark(#50605a, #9fb0a9); }
h2 { margin: 0 0 0.375rem; font-size: 1rem; line-height: 1.35; font-weight: 650; overflow-wrap: anywhere; }
p { margin: 0 0 0.5rem; overflow-wrap: anywhere; }
.code { font: 650 1.75rem/1.3 ui-monospace, Menlo, Consolas, monospace; letter-spacing: 0.12em; margin: 0.25rem 0 0.5rem; }
pre {
  margin: 0.25rem 0 0.5rem; padding: 0.5rem 0.625rem; max-height: 10rem; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 0.8125rem/1.45 ui-monospace, Menlo, Consolas, monospace;
  background: light-dark(#e9eeeb, #1e2824); border-radius: 6px;
}
summary { cursor: pointer; font-size: 0.875rem; }
.actions { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-top: 0.625rem; }
button {
  font: inherit; padding: 0.375rem 0.75rem; border-radius: 7px; cursor: pointer;
  background: transparent; color: inherit; border: 1px solid light-dark(#7d8d86, #6c7d76);
}
button.main {
  background: var(--tabrelay-accent, light-dark(#0f6f5c, #56d3ae));
  color: var(--tabrelay-accent-color, light-dark(#ffffff, #0e1412));
  border-color: transparent;
}
.said { margin: 0.5rem 0 0; }
.said:empty { display: none; }
button:disabled { opacity: 0.55; cursor: default; }
a { color: inherit; }
:focus-visible { outline: 2px solid light-dark(#1257c4, #8ab8ff); outline-offset: 2px; }
`;

/** @type {HTMLElement | undefined} */
let stack;
/** Panels so far: each heading has its own id. A page that is not secure has no `crypto.randomUUID`. */
let count = 0;

/**
 * Show a panel. Returns a function that removes it. With `isAlert`, screen readers announce it at once.
 * @param {Panel} panel
 * @returns {() => void}
 */
export function showPanel({ title, text, code, details, link, actions = [], isAlert = false }) {
  const root = document.createElement("section");
  root.setAttribute("part", "panel");
  root.setAttribute("role", isAlert ? "alert" : "status");
  append(root, "p", "Tabrelay").className = "from";
  const heading = append(root, "h2", title);
  heading.id = `title-${++count}`;
  root.setAttribute("aria-labelledby", heading.id);
  for (const line of text) append(root, "p", line);
  if (code) append(root, "p", code).className = "code";
  if (details) {
    const more = append(root, "details");
    append(more, "summary", details.label);
    append(more, "pre", details.text);
  }
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
  row.className = "actions";
  for (const { label, kind = "quiet", run } of actions) {
    const button = /** @type {HTMLButtonElement} */ (append(row, "button", label));
    button.type = "button";
    button.className = kind;
    button.setAttribute("part", `button ${kind}`);
    button.disabled = true;
    setTimeout(() => (button.disabled = false), ENABLE_DELAY_MS);
    // Only the user decides: a script of the page could dispatch a click.
    button.addEventListener("click", (event) => event.isTrusted && run(say));
  }
  return row;
}

/** The container of all panels of the page. */
function host() {
  if (stack?.isConnected) return stack;
  const element = document.createElement("tabrelay-panel");
  const shadow = element.attachShadow({ mode: "open" });
  // A constructed style sheet, because a page's content security policy may forbid style elements.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  shadow.adoptedStyleSheets = [sheet];
  stack = document.createElement("div");
  stack.className = "stack";
  shadow.append(stack);
  (document.body ?? document.documentElement).append(element);
  return stack;
}
