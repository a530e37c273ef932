/**
 * Entry point of the documentation's pages: copy buttons and colours of code, links to headings, the list of pages, the search.
 *
 * The pages are complete without it, except for the search. It stores nothing.
 */

import { codeBlock } from "./code_block.js";
import { offerSearch } from "./docs_search_box.js";
import { element } from "./element.js";

/** @type {Record<string, import("./code_block.js").Language>} */
const LANGUAGES = {
  bash: "shell", console: "shell", js: "js", json: "json", jsonc: "js", jsx: "js", py: "python", python: "python", sh: "shell",
  shell: "shell", ts: "js", tsx: "js",
};
const NARROW = "(max-width: 59.99rem)";

colourCode();
linkHeadings();
arrangeNavigation();
offerSearch();

function colourCode() {
  for (const block of document.querySelectorAll(".docs-text pre")) {
    const code = block.querySelector("code");
    if (!code) continue;
    const language = /language-(\w+)/.exec(code.className)?.[1] ?? "";
    const shown = codeBlock((code.textContent ?? "").replace(/\n$/, ""), LANGUAGES[language] ?? "text");
    // Only commands break lines: columns of other texts must stay below each other.
    if (!LANGUAGES[language]) shown.dataset.language = "plain";
    (block.closest("div.highlight") ?? block).replaceWith(shown);
  }
}

function linkHeadings() {
  for (const heading of document.querySelectorAll(".docs-text :is(h2, h3, h4)[id]")) {
    heading.append(element("a", { class: "docs-anchor", href: `#${heading.id}`, "aria-label": `Link to: ${heading.textContent}` }, "#"));
  }
}

/** On a narrow screen the list of pages is closed; else the entry of this page is in view. */
function arrangeNavigation() {
  const list = document.querySelector(".docs-nav");
  if (!(list instanceof HTMLDetailsElement)) return;
  const narrow = matchMedia(NARROW);
  const arrange = () => (list.open = !narrow.matches);
  narrow.addEventListener("change", arrange);
  arrange();
  const entry = list.querySelector("[aria-current=page]");
  const box = list.parentElement;
  if (entry instanceof HTMLElement && box && !narrow.matches) box.scrollTop = entry.offsetTop - box.clientHeight / 2;
}
