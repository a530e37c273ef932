/**
 * Style sheet of `<tabrelay-status>`, as text.
 *
 * The element takes font and colour from the app's header. Apps change the rest with the custom properties `--tabrelay-…` and with
 * `::part()`. The details are drawn over the page and change no layout.
 */

export const STATUS_STYLE = `
:host { display: inline-block; position: relative; max-width: 100%; font-size: 0.875rem; line-height: 1.4; }
:host([hidden]), [hidden] { display: none !important; }
.row {
  display: flex; flex-wrap: wrap; align-items: center; gap: 0.375rem 0.5rem;
  font-family: var(--tabrelay-font, inherit); color: var(--tabrelay-color, inherit);
}
.lamp {
  flex: none; width: 0.625rem; height: 0.625rem; border-radius: 50%;
  background: var(--tabrelay-off, #808a86);
}
.lamp[data-lamp="ok"] { background: var(--tabrelay-ok, light-dark(#0d6b57, #5ad2ae)); }
.lamp[data-lamp="busy"] { background: var(--tabrelay-busy, light-dark(#a86a00, #f0bb58)); }
.lamp[data-lamp="problem"] { background: var(--tabrelay-problem, light-dark(#b02a1c, #ff9485)); }
.status { display: inline-flex; flex-wrap: wrap; gap: 0 0.5rem; min-width: 0; }
.label { font-weight: 600; font-variant-numeric: tabular-nums; }
.server { font-family: ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.server:empty, .tabs:empty, .todo:empty, .help:empty { display: none; }
button {
  font: inherit; color: inherit; cursor: pointer; padding: 0.1875rem 0.625rem; background: transparent;
  border: 1px solid var(--tabrelay-border, currentColor); border-radius: var(--tabrelay-radius, 7px);
}
button.connect {
  background: var(--tabrelay-accent, light-dark(#1c57c8, #8db6ff)); color: var(--tabrelay-accent-color, light-dark(#ffffff, #0b1730)); border-color: transparent;
}
button.why { border-color: transparent; text-decoration: underline; padding-inline: 0.25rem; }
.details {
  position: absolute; z-index: 2147483646; inset: calc(100% + 0.375rem) 0 auto auto; box-sizing: border-box;
  width: max-content; max-width: min(22rem, calc(100vw - 1rem)); padding: 0.75rem 0.875rem; text-align: start;
  white-space: normal; overflow-wrap: anywhere;
  background: var(--tabrelay-background, Canvas); color: var(--tabrelay-details-color, CanvasText);
  border: 1px solid var(--tabrelay-border, color-mix(in srgb, CanvasText 35%, Canvas));
  border-radius: var(--tabrelay-radius, 10px); box-shadow: 0 8px 28px -12px rgb(0 0 0 / 45%);
}
p { margin: 0 0 0.375rem; }
.happened { font-weight: 600; }
.todo { margin: 0; }
.help { margin: 0.375rem 0 0; font-size: 0.8125rem; }
.address {
  display: block; padding: 0.375rem 0.5rem; border-radius: 6px; font: 0.8125rem/1.45 ui-monospace, Menlo, Consolas, monospace;
  background: color-mix(in srgb, CanvasText 9%, Canvas);
}
.actions { display: flex; flex-wrap: wrap; align-items: center; gap: 0.5rem 0.75rem; margin-top: 0.5rem; }
.actions:not(:has(:not([hidden]))) { display: none; }
a { color: inherit; }
:focus-visible { outline: 2px solid var(--tabrelay-focus, Highlight); outline-offset: 2px; }
`;
