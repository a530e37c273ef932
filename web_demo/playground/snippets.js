/**
 * Saved programs of the playground, in the storage of this browser, by name.
 *
 * The number of programs and their size have bounds. What is stored may have been changed by other code of this origin, so each entry
 * is checked when it is read. Saving under a name that exists replaces that program.
 *
 * @import { Program } from "./share.js"
 */

import { MAX_SOURCE } from "./share.js";

const KEY = "tabrelay-playground";
export const MAX_SNIPPETS = 20;
export const MAX_NAME = 60;

/** @typedef {Program & { name: string }} Snippet */

export class Snippets {
  #storage;

  /** @param {Pick<Storage, "getItem" | "setItem">} storage */
  constructor(storage) {
    this.#storage = storage;
  }

  /** @returns {Snippet[]} the last saved first */
  list() {
    try {
      const stored = JSON.parse(this.#storage.getItem(KEY) ?? "[]");
      return Array.isArray(stored) ? stored.filter(isSnippet).slice(0, MAX_SNIPPETS) : [];
    } catch {
      return [];
    }
  }

  /** Throws with a text for people. @param {Snippet} snippet */
  save({ name, language, source }) {
    const made = { name: name.trim(), language, source };
    if (!isSnippet(made)) throw new Error(`Give it a name of at most ${MAX_NAME} characters. [TR494]`);
    const others = this.list().filter((each) => each.name !== made.name);
    if (others.length >= MAX_SNIPPETS) throw new Error(`This browser keeps ${MAX_SNIPPETS} programs. Delete one first. [TR494]`);
    this.#write([made, ...others]);
  }

  /** @param {string} name */
  remove(name) {
    this.#write(this.list().filter((each) => each.name !== name));
  }

  /** @param {Snippet[]} snippets */
  #write(snippets) {
    try {
      this.#storage.setItem(KEY, JSON.stringify(snippets));
    } catch {
      throw new Error("The browser did not store it: its storage is full or blocked for this page. [TR494]");
    }
  }
}

/**
 * @param {any} value
 * @returns {value is Snippet}
 */
function isSnippet(value) {
  const isText = (/** @type {unknown} */ text, /** @type {number} */ most) => typeof text === "string" && text.length <= most;
  return isText(value?.name, MAX_NAME) && value.name !== "" && isText(value.source, MAX_SOURCE) && ["python", "javascript"].includes(value.language);
}
