/**
 * Style sheet of shadow roots in other people's pages: the shared part of the relay's design.css, and rules of one component.
 *
 * The text is a copy, because a page of another origin may not load style sheets of the relay. A test compares both, and
 * writes the copy with TABRELAY_WRITE_DOCS=1. Tokens are set on the class "design-root", which the outermost element must have.
 */

const SHARED = `
:root, .design-root {
  color-scheme: light dark;
  --color-bg: light-dark(#f3f5f6, #101416);
  --color-surface: light-dark(#ffffff, #181d20);
  --color-raised: light-dark(#e9edef, #242b2f);
  --color-text: light-dark(#161d21, #e8edef);
  --color-muted: light-dark(#4d5a61, #a3b0b6);
  --color-line: light-dark(#d2dade, #323b40);
  --color-edge: light-dark(#74838b, #75848c);
  --color-accent: light-dark(#1c57c8, #8db6ff);
  --color-on-accent: light-dark(#ffffff, #0b1730);
  --color-ok: light-dark(#0d6b57, #5ad2ae);
  --color-warn: light-dark(#855000, #f0bb58);
  --color-bad: light-dark(#b02a1c, #ff9485);
  --space-1: 0.25rem;
  --space-2: 0.5rem;
  --space-3: 0.75rem;
  --space-4: 1rem;
  --space-5: 1.5rem;
  --space-6: 2.5rem;
  --text-1: 0.8125rem;
  --text-2: 0.9375rem;
  --text-3: 1.0625rem;
  --text-4: 1.375rem;
  --text-5: clamp(1.75rem, 1.25rem + 2.2vw, 2.5rem);
  --radius: 0.5rem;
  --shadow: 0 0.5rem 2rem -0.75rem rgb(0 0 0 / 40%);
  --font: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", sans-serif;
  --font-mono: ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}

*, *::before, *::after { box-sizing: border-box; }
[hidden] { display: none !important; }
h1, h2, h3, h4, p, ol, ul, dl, dd, pre, figure { margin: 0; padding: 0; }
h1 { font-size: var(--text-5); line-height: 1.12; letter-spacing: -0.025em; font-weight: 680; text-wrap: balance; }
h2 { font-size: var(--text-3); line-height: 1.3; font-weight: 650; }
h3, h4 { font-size: var(--text-2); line-height: 1.35; font-weight: 620; }
a { color: var(--color-accent); text-underline-offset: 0.2em; }
code, samp, kbd, .mono { font-family: var(--font-mono); font-size: 0.92em; }
:focus-visible { outline: 2px solid var(--color-accent); outline-offset: 2px; border-radius: 0.25rem; }
.hint { color: var(--color-muted); font-size: var(--text-1); line-height: 1.5; }
.stack { display: flex; flex-direction: column; align-items: stretch; gap: var(--space-4); min-width: 0; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: var(--space-2) var(--space-3); min-width: 0; }

.button {
  display: inline-flex; align-items: center; justify-content: center; gap: var(--space-2);
  min-height: 2.25rem; padding: 0.375rem 0.875rem; border: 1px solid var(--color-edge); border-radius: var(--radius);
  background: var(--color-surface); color: var(--color-accent);
  font: 560 var(--text-2)/1.3 var(--font); text-align: center; text-decoration: none; cursor: pointer;
}
.button:hover { background: var(--color-raised); }
.button.is-primary { background: var(--color-accent); border-color: var(--color-accent); color: var(--color-on-accent); }
.button.is-primary:hover { background: color-mix(in srgb, var(--color-accent) 86%, var(--color-text)); }
.button.is-danger { border-color: var(--color-bad); color: var(--color-bad); }
.button.is-quiet { border-color: transparent; background: transparent; }
.button.is-quiet:hover { background: var(--color-raised); }
.button:disabled, .button[aria-disabled="true"] { opacity: 0.6; cursor: default; }

.badge {
  display: inline-flex; align-items: center; gap: 0.4em; padding: 0.125rem 0.5rem; border-radius: 1rem;
  background: var(--color-raised); color: var(--color-muted); font: 600 var(--text-1)/1.4 var(--font); white-space: nowrap;
}
.badge.is-ok { --state: var(--color-ok); }
.badge.is-warn { --state: var(--color-warn); }
.badge.is-bad { --state: var(--color-bad); }
.badge:is(.is-ok, .is-warn, .is-bad) { color: var(--state); background: color-mix(in srgb, var(--state) 12%, var(--color-surface)); }
.badge:is(.is-ok, .is-warn, .is-bad)::before {
  content: ""; width: 0.5em; height: 0.5em; border-radius: 50%; background: currentcolor;
}

.card {
  min-width: 0; padding: var(--space-5); border: 1px solid var(--color-line); border-radius: var(--radius);
  background: var(--color-surface); color: var(--color-text);
}
.notice { padding: var(--space-3) var(--space-4); border-radius: var(--radius); overflow-wrap: anywhere; background: var(--color-raised); }
.notice.is-ok { --state: var(--color-ok); }
.notice.is-warn { --state: var(--color-warn); }
.notice.is-bad { --state: var(--color-bad); }
.notice:is(.is-ok, .is-warn, .is-bad) {
  background: color-mix(in srgb, var(--state) 10%, var(--color-surface)); box-shadow: inset 3px 0 var(--state);
}

.code { position: relative; min-width: 0; border-radius: var(--radius); background: var(--color-raised); color: var(--color-text); }
.code pre {
  max-height: 26rem; overflow: auto; padding: var(--space-3) 5rem var(--space-3) var(--space-3); border-radius: var(--radius);
  font: 400 var(--text-1)/1.6 var(--font-mono); white-space: pre; tab-size: 2;
}
.code pre code { font-size: inherit; }
.code[data-language="shell"] pre, .code[data-language="text"] pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.code .word { display: inline-block; max-width: 100%; white-space: pre-wrap; overflow-wrap: anywhere; }
.code .copy {
  position: absolute; top: 0.375rem; right: 0.375rem; min-width: 4.25rem; min-height: 1.75rem; padding: 0.125rem 0.5rem;
  border: 1px solid var(--color-line); border-radius: var(--radius); background: var(--color-surface); color: var(--color-accent);
  font: 560 var(--text-1)/1.3 var(--font); cursor: pointer;
}
.code .copy:hover { border-color: var(--color-edge); }
.code-keyword { color: light-dark(#6d2aa8, #d0a8ff); }
.code-string { color: light-dark(#0d6148, #7fd8b4); }
.code-number { color: light-dark(#8a3c00, #f5b783); }
.code-name { color: light-dark(#124a9e, #9cc4ff); }
.code-comment { color: var(--color-muted); font-style: italic; }

.dialog {
  width: min(34rem, calc(100vw - 2rem)); max-height: calc(100vh - 2rem); margin: auto; padding: var(--space-5); overflow: auto;
  border: 1px solid var(--color-edge); border-radius: calc(var(--radius) * 1.5); box-shadow: var(--shadow);
  background: var(--color-surface); color: var(--color-text); font: 400 var(--text-2)/1.5 var(--font); text-align: start;
}
.dialog::backdrop { background: rgb(0 0 0 / 55%); }
.dialog h2 { font-size: var(--text-4); overflow-wrap: anywhere; }
.dialog p { overflow-wrap: anywhere; }
`;

/**
 * A constructed style sheet, because a page's content security policy may forbid style elements.
 *
 * @param {ShadowRoot} shadow
 * @param {string} own rules of the component
 */
export function adoptDesign(shadow, own) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(SHARED + own);
  shadow.adoptedStyleSheets = [sheet];
}
