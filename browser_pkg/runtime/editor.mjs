// The playground's editor: CodeMirror with Python and JavaScript, as one module. assets.py bundles this file with esbuild into
// build/assets/editor/editor.js; browser_pkg/stubs/editor.d.ts has its types.
//
// The editor is inside a shadow root. There style-mod adds its rules as constructed style sheets; in a document it would insert a
// <style> element, which the pages' content security policy refuses.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const LANGUAGES = { python, javascript };
const INDENTS = { python: "    ", javascript: "  " };

// Custom properties of the page reach into the shadow root, and so does its color-scheme.
const THEME = EditorView.theme({
  "&": { height: "100%", color: "var(--color-text)", backgroundColor: "transparent", fontSize: "var(--text-1)" },
  "&.cm-focused": { outline: "2px solid var(--color-accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--color-text)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--color-text)" },
  ".cm-gutters": { color: "var(--color-muted)", backgroundColor: "transparent", borderRight: "1px solid var(--color-line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--color-text) 5%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--color-accent) 25%, transparent)",
  },
  ".cm-tooltip": { color: "var(--color-text)", backgroundColor: "var(--color-surface)", border: "1px solid var(--color-edge)" },
});

// The colours of .code in design.css.
const HIGHLIGHT = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword], color: "light-dark(#6d2aa8, #d0a8ff)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "light-dark(#0d6148, #7fd8b4)" },
  { tag: [tags.number, tags.bool, tags.null], color: "light-dark(#8a3c00, #f5b783)" },
  { tag: tags.comment, color: "var(--color-muted)", fontStyle: "italic" },
  { tag: [tags.definition(tags.function(tags.variableName)), tags.meta], color: "light-dark(#124a9e, #9cc4ff)" },
]);

// Where typing replaces a selection, Chromium keeps its look in a style attribute, which the pages' content security policy refuses
// and reports. So that text is inserted here.
const REPLACE_SELECTION = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType } = event;
    if (inputType !== "insertText" || !data || view.composing || view.state.selection.main.empty) return false;
    event.preventDefault();
    view.dispatch(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true });
    return true;
  },
});

/** @param {{ parent: HTMLElement, label: string, maxLength: number, onRun: () => void, onChange: () => void }} options */
export function createEditor({ parent, label, maxLength, onRun, onChange }) {
  const root = parent.attachShadow({ mode: "open" });
  const box = root.appendChild(document.createElement("div"));
  box.style.height = "100%";
  const language = new Compartment();
  const languageOf = (name) => [LANGUAGES[name](), indentUnit.of(INDENTS[name])];

  const view = new EditorView({
    root,
    parent: box,
    state: EditorState.create({
      extensions: [
        // First: Enter alone, and Ctrl-Enter, belong to the default keymap too.
        keymap.of([{ key: "Mod-Enter", run: () => (onRun(), true), preventDefault: true }]),
        keymap.of([{ key: "Ctrl-Enter", run: () => (onRun(), true), preventDefault: true }]),
        lineNumbers(),
        lintGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        syntaxHighlighting(HIGHLIGHT),
        keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
        language.of(languageOf("python")),
        EditorView.lineWrapping,
        REPLACE_SELECTION,
        EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
        EditorView.updateListener.of((update) => update.docChanged && onChange()),
        EditorState.changeFilter.of((change) => change.newDoc.length <= maxLength),
        THEME,
      ],
    }),
  });

  return {
    get text() {
      return view.state.doc.toString();
    },
    load(text, name) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        selection: { anchor: 0 },
        effects: language.reconfigure(languageOf(name)),
      });
      view.dispatch(setDiagnostics(view.state, []));
    },
    showError(message, line, column) {
      const { doc } = view.state;
      const at = doc.line(Math.min(Math.max(line, 1), doc.lines));
      const from = Math.min(at.from + Math.max(column - 1, 0), at.to);
      const whole = column > 0 && from < at.to ? from : at.from;
      const diagnostic = { from: whole, to: at.to, severity: "error", message };
      view.dispatch(setDiagnostics(view.state, [diagnostic]), { effects: EditorView.scrollIntoView(at.from) });
    },
    clearError() {
      view.dispatch(setDiagnostics(view.state, []));
    },
    focus() {
      view.focus();
    },
  };
}
