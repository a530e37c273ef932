/**
 * Choice of the playground's programs: starting points and those saved in this browser, with Save and Delete.
 *
 * A chosen program is put into the editor; nothing is executed. The storage and its bounds are in snippets.js.
 *
 * @import { Program } from "./share.js"
 */

import { byId, element } from "/-/page/element.js";
import { MAX_NAME, Snippets } from "./snippets.js";
import { STARTING_POINTS } from "./starting_points.js";

const SAVED = "saved:";

/**
 * @typedef {object} ChoiceOptions
 * @property {() => Program} read the program in the editor
 * @property {(program: Program) => void} load
 * @property {(id: string) => void} loadStartingPoint
 * @property {(text: string) => void} say
 */

export class ProgramChoice {
  #options;
  #snippets = new Snippets(localStorage);
  #choice = byId("starting-point", HTMLSelectElement);
  #remove = byId("delete", HTMLButtonElement);
  #form = byId("save-form", HTMLFormElement);
  #name = byId("save-name", HTMLInputElement);

  /** @param {ChoiceOptions} options */
  constructor(options) {
    this.#options = options;
    this.#name.maxLength = MAX_NAME;
    this.#choice.addEventListener("change", () => this.#load());
    this.#remove.addEventListener("click", () => this.#delete());
    byId("save", HTMLElement).addEventListener("click", () => {
      this.#form.hidden = false;
      this.#name.value = this.#chosen ?? this.#name.value;
      this.#name.select();
    });
    byId("save-cancel", HTMLElement).addEventListener("click", () => this.#closeForm());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save(this.#name.value.trim());
    });
    this.show("");
  }

  /** Draw the list. @param {string} value the id of the starting point that is chosen */
  show(value) {
    const points = STARTING_POINTS.map(({ id, title }) => element("option", { value: id }, title));
    const saved = this.#snippets.list().map(({ name }) => element("option", { value: SAVED + name }, name));
    const groups = saved.length
      ? [element("optgroup", { label: "Starting points" }, ...points), element("optgroup", { label: "Saved in this browser" }, ...saved)]
      : points;
    this.#choice.replaceChildren(element("option", { value: "" }, "Choose a program"), ...groups);
    this.#choice.value = value;
    this.#remove.hidden = this.#chosen === null;
  }

  /** The name of the saved program that is chosen. */
  get #chosen() {
    const { value } = this.#choice;
    return value.startsWith(SAVED) ? value.slice(SAVED.length) : null;
  }

  #load() {
    this.#remove.hidden = this.#chosen === null;
    const program = this.#snippets.list().find(({ name }) => name === this.#chosen);
    if (program) this.#options.load(program);
    else if (this.#choice.value) this.#options.loadStartingPoint(this.#choice.value);
  }

  /** @param {string} name */
  #save(name) {
    const { read, say } = this.#options;
    try {
      this.#snippets.save({ name, ...read() });
    } catch (error) {
      return say(String(/** @type {Error} */ (error).message));
    }
    this.show(SAVED + name);
    this.#closeForm();
    say(`Saved as "${name}" in this browser.`);
  }

  #delete() {
    const name = this.#chosen;
    if (name === null) return;
    try {
      this.#snippets.remove(name);
    } catch (error) {
      return this.#options.say(String(/** @type {Error} */ (error).message));
    }
    this.show("");
    this.#choice.focus();
    this.#options.say(`Deleted "${name}" from this browser. The editor still has the program.`);
  }

  #closeForm() {
    this.#form.hidden = true;
    byId("save", HTMLElement).focus();
  }
}
