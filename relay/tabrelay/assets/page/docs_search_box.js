/**
 * Search box of the documentation: a combobox with the sections that were found.
 *
 * The index is fetched when the box gets the focus, from this relay. `/` moves the focus there; arrow keys, Enter and Escape work
 * as in any combobox. An address that ends in `?q=words` shows what is found for them. Ranking is in docs_search.js.
 *
 * @import { Found } from "./docs_search.js"
 */

import { DocsIndex, excerpt } from "./docs_search.js";
import { byId, element } from "./element.js";

const ANSWER_MS = 10_000;

export function offerSearch() {
  const box = new SearchBox(byId("docs-search", HTMLInputElement), byId("docs-results", HTMLElement), byId("docs-found", HTMLElement));
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) box.ask(asked.slice(0, 200));
}

class SearchBox {
  #input;
  #list;
  #status;
  /** @type {Promise<DocsIndex> | null} */
  #index = null;
  #selected = -1;

  /**
   * @param {HTMLInputElement} input
   * @param {HTMLElement} list
   * @param {HTMLElement} status
   */
  constructor(input, list, status) {
    this.#input = input;
    this.#list = list;
    this.#status = status;
    input.addEventListener("focus", () => void this.#load().catch(() => {}));
    input.addEventListener("input", () => void this.#show());
    input.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("keydown", (event) => {
      const typed = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
      if (event.key !== "/" || typed || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      if (event.target instanceof Node && !list.contains(event.target) && event.target !== input) this.#close();
    });
    input.closest("search")?.addEventListener("focusout", (event) => {
      const next = /** @type {FocusEvent} */ (event).relatedTarget;
      if (next instanceof Node && !list.contains(next) && next !== input) this.#close();
    });
  }

  /** @param {string} question */
  ask(question) {
    this.#input.value = question;
    this.#input.focus();
    void this.#show();
  }

  async #load() {
    this.#index ??= fetchIndex(`${this.#input.dataset.base ?? ""}search.json`);
    try {
      return await this.#index;
    } catch (error) {
      this.#index = null;
      throw error;
    }
  }

  async #show() {
    const question = this.#input.value;
    if (!question.trim()) return this.#close();
    let index;
    try {
      index = await this.#load();
    } catch {
      this.#status.textContent = "The search index could not be loaded. Does the relay still run?";
      return;
    }
    if (question !== this.#input.value) return;
    const found = index.find(question);
    this.#list.replaceChildren(...found.map((one, number) => this.#option(one, number)));
    this.#status.textContent = found.length ? "" : "Nothing was found. Try fewer words, or the code of an error.";
    this.#list.hidden = found.length === 0;
    this.#input.setAttribute("aria-expanded", String(found.length > 0));
    this.#select(found.length ? 0 : -1);
  }

  /**
   * @param {Found} found
   * @param {number} number
   */
  #option({ url, title, heading, text, words }, number) {
    const parts = excerpt(text, words).map(([part, isMarked]) => (isMarked ? element("mark", {}, part) : part));
    const option = element(
      "a",
      { role: "option", id: `docs-result-${number}`, href: (this.#input.dataset.base ?? "") + url, tabindex: -1, "aria-selected": "false" },
      element("span", { class: "found-title" }, heading ? `${title} › ${heading}` : title),
      element("span", { class: "found-text" }, ...parts),
    );
    option.addEventListener("click", () => this.#close());
    return option;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const count = this.#list.hidden ? 0 : this.#list.children.length;
    if (event.key === "Escape" && count > 0) this.#close();
    else if (event.key === "ArrowDown" && count > 0) this.#select((this.#selected + 1) % count);
    else if (event.key === "ArrowUp" && count > 0) this.#select((this.#selected + count - 1) % count);
    else if (event.key === "ArrowDown" && this.#input.value.trim()) void this.#show();
    else if (event.key === "Enter" && this.#selected >= 0 && count > 0) /** @type {HTMLElement} */ (this.#list.children[this.#selected]).click();
    else return;
    event.preventDefault();
  }

  /** @param {number} number */
  #select(number) {
    this.#selected = number;
    [...this.#list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === number)));
    const option = this.#list.children[number];
    if (option) {
      this.#input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      this.#input.removeAttribute("aria-activedescendant");
    }
  }

  #close() {
    this.#list.hidden = true;
    this.#status.textContent = "";
    this.#input.setAttribute("aria-expanded", "false");
    this.#select(-1);
  }
}

/** @param {string} address */
async function fetchIndex(address) {
  const answer = await fetch(address, { signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok) throw new Error(`the search index: ${answer.status}`);
  return new DocsIndex(await answer.json());
}
