/**
 * Filter field of the console: text, completion of keys, problems, and saved filters.
 *
 * The text is kept in the address; saved filters in this browser's storage, at most `MAX_SAVED`. It decides nothing about rows:
 * filter.js does.
 */

import { element, setText } from "../element.js";
import { KEYS, parseFilter } from "./filter.js";
import { setUrlValues, urlValue } from "./url_state.js";

const STORED = "tabrelay-console-filters";
const MAX_SAVED = 30;
const EXAMPLES = ["status:error", "ms:>500", "status:open", "by:console", "-method:list"];

/** @typedef {import("./filter.js").Filter} Filter */

export class FilterBar extends EventTarget {
  root;
  #input;
  #problem;
  #saved;
  /** @type {Filter} */
  #filter;

  constructor() {
    super();
    this.#filter = parseFilter(urlValue("q"));
    this.#input = element("input", {
      type: "search",
      id: "filter",
      "data-testid": "filter",
      placeholder: "Filter: tool:add status:error ms:>500",
      "aria-label": "Filter calls",
      "aria-describedby": "filter-problem",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      list: "filter-keys",
    });
    this.#input.value = this.#filter.text;
    this.#problem = element("p", { class: "hint is-problem", id: "filter-problem", role: "status" });
    this.#saved = element("div", { class: "row saved" });
    const keys = element("datalist", { id: "filter-keys" }, ...KEYS.map(([key, about]) => element("option", { value: `${key}:` }, about)));
    this.#input.addEventListener("input", () => this.#set(this.#input.value));
    this.root = element("div", { class: "filter-bar" }, this.#input, keys, this.#menu(), this.#problem);
    this.#drawSaved();
  }

  /** @returns {Filter} */
  get filter() {
    return this.#filter;
  }

  /** @param {string} text */
  set(text) {
    this.#input.value = text;
    this.#set(text);
  }

  focus() {
    this.#input.focus();
    this.#input.select();
  }

  /** @returns {string[]} */
  get saved() {
    try {
      const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
    } catch {
      return [];
    }
  }

  /** @param {string} text */
  #set(text) {
    this.#filter = parseFilter(text);
    setUrlValues({ q: this.#filter.text });
    setText(this.#problem, this.#filter.problems.join(" "));
    this.dispatchEvent(new Event("change"));
  }

  #menu() {
    const save = element("button", { type: "button", class: "button is-small" }, "Save this filter");
    save.addEventListener("click", () => {
      const text = this.#filter.text;
      if (text) this.#store([text, ...this.saved.filter((each) => each !== text)].slice(0, MAX_SAVED));
    });
    const table = element("dl", { class: "keys" }, ...KEYS.flatMap(([key, about]) => [element("dt", { class: "mono" }, `${key}:`), element("dd", {}, about)]));
    return element(
      "details",
      { class: "menu" },
      element("summary", { class: "button" }, "Filters"),
      element("div", { class: "menu-body stack is-close" }, element("div", { class: "row" }, save), this.#saved, table, element("p", { class: "hint" }, "All terms must match. A comma means “or”, a minus “not”; quotes keep spaces.")),
    );
  }

  /** @param {string[]} filters */
  #store(filters) {
    localStorage.setItem(STORED, JSON.stringify(filters));
    this.#drawSaved();
  }

  #drawSaved() {
    const own = this.saved.map((text) => {
      const remove = element("button", { type: "button", class: "button is-quiet is-small", "aria-label": `Remove the filter ${text}` }, "✕");
      remove.addEventListener("click", () => this.#store(this.saved.filter((each) => each !== text)));
      return element("span", { class: "chip" }, this.#chip(text), remove);
    });
    this.#saved.replaceChildren(...own, ...EXAMPLES.map((text) => this.#chip(text)));
  }

  /** @param {string} text */
  #chip(text) {
    const chip = element("button", { type: "button", class: "button is-small mono" }, text);
    chip.addEventListener("click", () => this.set(text));
    return chip;
  }
}
