/**
 * Block of code with a copy button and syntax colours for JavaScript, Python, JSON and shell.
 *
 * `codeBlock(text, language)` returns an element. All text goes in as text nodes. A shell command breaks between words, never
 * inside an option; other languages scroll sideways. The colours come from one regular expression for each language, not from a
 * parser: it knows no nested templates and no regular expression literals. Long text has no colours.
 */

import { element } from "./element.js";

/** @typedef {"js" | "python" | "json" | "shell" | "text"} Language */
/** @typedef {"" | "keyword" | "string" | "number" | "name" | "comment"} Kind */

const COPIED_MS = 1600;
const MAX_COLOURED = 20_000; // characters
const NUMBER = String.raw`(?<number>(?<![\w$.])(?:0[xob][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?))`;
const QUOTED = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const JS_WORDS =
  "async|await|break|case|catch|class|const|continue|default|delete|do|else|export|extends|false|finally|for|from|function|if|" +
  "import|in|instanceof|let|new|null|of|return|static|super|switch|this|throw|true|try|typeof|undefined|var|void|while|yield";
const PYTHON_WORDS =
  "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global|if|import|in|is|lambda|" +
  "None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield";

/** One expression with a named group for each kind. @type {Record<Language, RegExp | null>} */
const GRAMMARS = {
  js: new RegExp(
    String.raw`(?<comment>//.*|/\*[^]*?(?:\*/|$))|(?<string>${QUOTED}|${"`"}(?:[^${"`"}\\]|\\[^])*${"`"}?)|${NUMBER}|` +
      String.raw`(?<keyword>(?<![\w$.])(?:${JS_WORDS})(?![\w$]))|(?<name>(?<![\w$])[\w$]+(?=\())`,
    "gu",
  ),
  python: new RegExp(
    String.raw`(?<comment>#.*)|(?<string>\b[bfru]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$))|\b[bfru]{0,2}(?:${QUOTED})|` +
      String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${QUOTED})|${NUMBER}|` +
      String.raw`(?<keyword>(?<![\w.])(?:${PYTHON_WORDS})(?!\w))|(?<name>@[\w.]+|(?<!\w)\w+(?=\())`,
    "gu",
  ),
  json: new RegExp(
    String.raw`(?<name>"(?:[^"\\\n]|\\[^])*"(?=\s*:))|(?<string>"(?:[^"\\\n]|\\[^])*"?)|${NUMBER}|(?<keyword>\b(?:true|false|null)\b)`,
    "giu",
  ),
  shell: new RegExp(
    String.raw`(?<comment>(?<![^\s])#.*)|(?<string>"(?:[^"\\]|\\[^])*"?|'[^']*'?)|` +
      String.raw`(?<name>(?<![^\s])--?[a-z][\w-]*|\$\w+|\$\{[^}\n]*\})|(?<keyword>(?<=^|[\n|;&(]\s*)[a-z./~][\w./~-]*(?=\s|$))`,
    "giu",
  ),
  text: null,
};

/**
 * @param {string} text
 * @param {Language} [language]
 * @returns {HTMLElement}
 */
export function codeBlock(text, language = "text") {
  const tokens = tokenize(text, language);
  const breaks = language === "shell" || language === "text";
  const code = element("code", {}, ...(breaks ? wordNodes(tokens) : tokens.map(([kind, part]) => tokenNode(kind, part))));
  const button = element("button", { type: "button", class: "copy", "aria-label": "Copy" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copyText(text, code)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  });
  const block = element("pre", { tabindex: 0, role: "group", "aria-label": "Code" }, code);
  return element("div", { class: "code", "data-language": language }, block, button);
}

/**
 * The text as parts with their kind of syntax. The parts together are the text.
 *
 * @param {string} text
 * @param {Language} language
 * @returns {[Kind, string][]}
 */
export function tokenize(text, language) {
  const grammar = GRAMMARS[language];
  if (!grammar || text.length > MAX_COLOURED) return [["", text]];
  /** @type {[Kind, string][]} */
  const tokens = [];
  let end = 0;
  for (const match of text.matchAll(grammar)) {
    if (match[0] === "") continue;
    if (match.index > end) tokens.push(["", text.slice(end, match.index)]);
    const kind = Object.entries(match.groups ?? {}).find(([, part]) => part !== undefined)?.[0] ?? "";
    tokens.push([/** @type {Kind} */ (kind), match[0]]);
    end = match.index + match[0].length;
  }
  if (end < text.length) tokens.push(["", text.slice(end)]);
  return tokens;
}

/**
 * @param {Kind} kind
 * @param {string} text
 */
function tokenNode(kind, text) {
  return kind ? element("span", { class: `code-${kind}` }, text) : text;
}

/**
 * One element for each word, so that a line breaks between words and never after the dashes of `--transport`.
 *
 * @param {[Kind, string][]} tokens
 */
function wordNodes(tokens) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  /** @type {HTMLElement | null} */
  let word = null;
  for (const [kind, text] of tokens) {
    for (const part of text.split(/(\s+)/u)) {
      if (part === "") continue;
      if (/^\s/u.test(part)) {
        nodes.push(part);
        word = null;
        continue;
      }
      if (!word) nodes.push((word = element("span", { class: "word" })));
      word.append(tokenNode(kind, part));
    }
  }
  return nodes;
}

/**
 * Copies the text. Without a clipboard (http from another computer), it selects what is shown instead and returns false.
 *
 * @param {string} text
 * @param {HTMLElement} shown
 * @returns {Promise<boolean>}
 */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection()?.selectAllChildren(shown);
    return false;
  }
}
