/**
 * Warnings about the tools of a page: what is probably a mistake in a definition, and names that tools of the worker have too.
 *
 * Each is logged to the page's console, once for each name of a tool. The tool is offered in any case.
 *
 * @import { CatalogueEntry, Tool } from "../client.js"
 */

import { nearest } from "./options.js";

/** Number of tool names whose warnings are not repeated. */
const MOST_WARNED = 256;
/** The members of a tool. */
const MEMBERS = ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "task", "hints", "visibility", "_meta", "execute"];
const ANNOTATIONS = ["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
/** The owner of the worker's items in a catalogue. */
const WORKER = "worker";

export class ToolWarnings {
  /** Names of tools with a warning about their definition, and of those that the worker has. */
  #defined = new WarnedNames();
  #shared = new WarnedNames();

  /**
   * @param {Tool} tool
   * @param {Tool | undefined} known the tool that has this name already
   */
  check(tool, known) {
    const warnings = mistakes(tool, known !== undefined && known !== tool);
    if (warnings.length) this.#defined.warn(tool.name, warnings);
  }

  /**
   * @param {ReadonlyMap<string, Tool>} own the tools of the page, by name
   * @param {CatalogueEntry[]} listed what clients see
   */
  compareNames(own, listed) {
    for (const { name, owner } of listed) {
      if (owner !== WORKER || !own.has(name)) continue;
      this.#shared.warn(name, [
        "has the name of a tool of the worker, and clients that call this name get the worker's. The page's tool is listed with " +
          "a suffix if its definition differs, else not at all. Give one of them another name.",
      ]);
    }
  }
}

class WarnedNames {
  /** @type {Set<string>} */
  #names = new Set();

  /**
   * @param {string} name
   * @param {string[]} warnings
   */
  warn(name, warnings) {
    if (this.#names.has(name)) return;
    // A page may make up names without an end.
    if (this.#names.size >= MOST_WARNED) this.#names.clear();
    this.#names.add(name);
    for (const warning of warnings) console.warn(`tabrelay: Tool "${name}" ${warning} [TR481]`);
  }
}

/**
 * @param {Tool} tool
 * @param {boolean} replaces
 */
function mistakes(tool, replaces) {
  const similar = [...misspelt(tool, MEMBERS), ...misspelt(tool.annotations ?? {}, ANNOTATIONS)];
  return [
    ...(tool.description?.trim() ? [] : ["has no description. Models choose tools by it: write what it does and when to use it."]),
    ...(replaces ? ["replaces another one of this name. Give it another name, or withdraw the first one by its signal."] : []),
    ...similar.map(({ member, meant }) => `has an unknown member "${member}". Did you mean "${meant}"?`),
  ];
}

/**
 * Unknown members that resemble a known one.
 * @param {object} item
 * @param {string[]} known
 */
function misspelt(item, known) {
  const unknown = Object.keys(item).filter((member) => !known.includes(member));
  return unknown.map((member) => ({ member, meant: nearest(member, known) })).filter(({ meant }) => meant);
}
