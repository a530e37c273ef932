/**
 * JSON Schema validator for the arguments of a tab's tools: a list of faults with their paths.
 *
 * It covers the keywords of JSON Schema 2020-12 that assert something of a value, and `$ref` within the schema. `format` and
 * `content…` are annotations, as in the specification. It ignores `unevaluated…` and references to other documents. Python
 * checks Python tools and describes faults in the same words.
 */

import { certainlyValid } from "./quick_check.js";
import { isSame, kindOf, label, show, at } from "./describe.js";

/** @typedef {import("./describe.js").Schema} Schema */

// Limit for circular references and deeply nested values.
const MAX_DEPTH = 128;

/**
 * @param {Schema | boolean} schema
 * @param {unknown} value
 * @param {string} [path]
 * @param {string} [noun]
 * @returns {string[]} what is wrong, one line each
 */
export function check(schema, value, path = "arguments", noun = "argument") {
  if (certainlyValid(schema, value)) return [];
  return new Checker(schema).check(schema, value, path, noun, 0);
}

class Checker {
  #root;

  /** @param {Schema | boolean} root where references begin */
  constructor(root) {
    this.#root = root;
  }

  /**
   * @param {Schema | boolean} schema
   * @param {unknown} value
   * @param {string} path
   * @param {string} noun
   * @param {number} depth
   * @returns {string[]}
   */
  check(schema, value, path, noun, depth) {
    if (schema === false) return [`${path}: not allowed`];
    if (typeof schema !== "object" || schema === null) return [];
    if (depth > MAX_DEPTH) return [`${path}: nested too deeply`];
    if (!fits(schema, value)) return [`${path}: expected ${label(schema)}, got ${show(value)}`];
    return [
      ...this.#ownFaults(schema, value, path, noun, depth + 1),
      ...this.#combined(schema, value, path, noun, depth + 1),
    ];
  }

  /**
   * @param {Schema} schema
   * @param {unknown} value
   * @param {string} path
   * @param {string} noun
   * @param {number} depth
   */
  #ownFaults(schema, value, path, noun, depth) {
    if (Array.isArray(value)) return this.#ofArray(schema, value, path, depth);
    if (typeof value === "object" && value !== null) return this.#ofObject(schema, value, path, noun, depth);
    if (typeof value === "number") return ofNumber(schema, value, path);
    return typeof value === "string" ? ofString(schema, value, path) : [];
  }

  /**
   * Keywords that combine other schemas.
   * @param {Schema} schema
   * @param {unknown} value
   * @param {string} path
   * @param {string} noun
   * @param {number} depth
   */
  #combined(schema, value, path, noun, depth) {
    const faultsOf = (/** @type {Schema | boolean} */ inner) => this.check(inner, value, path, noun, depth);
    const faults = [];
    if (typeof schema.$ref === "string") faults.push(...faultsOf(this.#find(schema.$ref)));
    for (const inner of listOf(schema.allOf)) faults.push(...faultsOf(inner));
    if (Array.isArray(schema.anyOf)) faults.push(...this.#best(schema.anyOf, value, path, faultsOf));
    if (Array.isArray(schema.oneOf)) {
      const fitting = schema.oneOf.filter((inner) => faultsOf(inner).length === 0).length;
      if (fitting === 0) faults.push(...this.#best(schema.oneOf, value, path, faultsOf));
      else if (fitting > 1) faults.push(`${path}: fits ${fitting} of the things that it may be, and may fit only one`);
    }
    if (isSchema(schema.not) && faultsOf(schema.not).length === 0) faults.push(`${path}: not allowed, got ${show(value)}`);
    if (isSchema(schema.if)) {
      const next = faultsOf(schema.if).length === 0 ? schema.then : schema.else;
      if (isSchema(next)) faults.push(...faultsOf(next));
    }
    return faults;
  }

  /**
   * The faults if no choice is valid: those of the choice that was probably meant, otherwise a list of the expected types.
   * @param {(Schema | boolean)[]} choices
   * @param {unknown} value
   * @param {string} path
   * @param {(schema: Schema | boolean) => string[]} faultsOf
   */
  #best(choices, value, path, faultsOf) {
    const all = choices.map(faultsOf);
    if (all.some((faults) => faults.length === 0)) return [];
    const near = all.filter((_, index) => this.#isOfType(choices[index], value));
    const meant = all.filter((_, index) => this.#isMeant(choices[index], value));
    if (near.length) {
      const wrong = meant.length ? undefined : this.#wrongTag(choices.filter((one) => this.#isOfType(one, value)), value);
      if (wrong) return [`${at(path, wrong.key)}: expected ${label({ enum: wrong.choices })}, got ${show(wrong.given)}`];
      return (meant.length ? meant : near).reduce((best, faults) => (faults.length < best.length ? faults : best));
    }
    const labels = choices.map((choice) => label(this.#plain(choice)));
    return [`${path}: expected ${[...new Set(labels)].join(" or ")}, got ${show(value)}`];
  }

  /**
   * If all records have a discriminator property and none has this value: that property, with all its expected values.
   * @param {(Schema | boolean)[]} records
   * @param {unknown} value
   */
  #wrongTag(records, value) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    const every = records.map((record) => this.#plain(record).properties ?? {});
    for (const key of Object.keys(every[0] ?? {})) {
      const tags = every.map((properties) => choicesOf(this.#plain(properties[key])));
      if (!Object.hasOwn(value, key) || tags.some((choices) => choices === undefined)) continue;
      const given = /** @type {Record<string, unknown>} */ (value)[key];
      const choices = /** @type {unknown[]} */ (tags.flat());
      if (!choices.some((choice) => isSame(choice, given))) return { key, choices, given };
    }
    return undefined;
  }

  /**
   * @param {Schema | boolean | undefined} choice
   * @param {unknown} value
   */
  #isOfType(choice, value) {
    const types = [this.#plain(choice).type ?? []].flat();
    return types.includes(kindOf(value)) || (typeof value === "number" && types.includes("integer"));
  }

  /**
   * Has the value the right type and the constants that distinguish this record?
   * @param {Schema | boolean | undefined} choice
   * @param {unknown} value
   */
  #isMeant(choice, value) {
    const schema = this.#plain(choice);
    if (!this.#isOfType(choice, value)) return false;
    if (typeof value !== "object" || value === null) return true;
    const given = new Map(Object.entries(value));
    return Object.entries(schema.properties ?? {}).every(([key, inner]) => {
      const choices = choicesOf(this.#plain(inner));
      return !given.has(key) || !choices || choices.some((choice) => isSame(choice, given.get(key)));
    });
  }

  /** The schema that a reference leads to. @param {Schema | boolean | undefined} schema @returns {Schema} */
  #plain(schema) {
    for (let step = 0; step < MAX_DEPTH && typeof schema === "object" && typeof schema.$ref === "string"; step++) {
      schema = this.#find(schema.$ref);
    }
    return typeof schema === "object" ? schema : {};
  }

  /** Target of `#`, `#/$defs/Name` or a `$anchor`; `true` for another document. @param {string} ref @returns {Schema | boolean} */
  #find(ref) {
    if (!ref.startsWith("#")) return true;
    const pointer = decodeURIComponent(ref.slice(1));
    if (pointer && !pointer.startsWith("/")) return anchored(this.#root, pointer) ?? true;
    let found = /** @type {any} */ (this.#root);
    for (const step of pointer.split("/").slice(1)) {
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      if (typeof found !== "object" || found === null || !Object.hasOwn(found, key)) return true;
      found = found[key];
    }
    return found;
  }

  /**
   * @param {Schema} schema
   * @param {object} value
   * @param {string} path
   * @param {string} noun
   * @param {number} depth
   */
  #ofObject(schema, value, path, noun, depth) {
    const given = new Map(Object.entries(value));
    const properties = new Map(Object.entries(schema.properties ?? {}));
    const patterns = Object.entries(schema.patternProperties ?? {}).map(([text, inner]) => [regex(text), inner]);
    const faults = bounds(path, " properties", given.size, schema.minProperties, schema.maxProperties);
    const inside = (/** @type {any} */ inner, /** @type {string} */ key) =>
      faults.push(...this.check(inner, given.get(key), at(path, key), "property", depth));
    for (const key of given.keys()) {
      if (isSchema(schema.propertyNames)) {
        faults.push(...this.check(schema.propertyNames, key, `${at(path, key)}, its name`, noun, depth));
      }
      const matching = patterns.filter(([pattern]) => pattern?.test(key));
      for (const [, inner] of matching) inside(inner, key);
      if (properties.has(key) || matching.length) continue;
      if (schema.additionalProperties === false) faults.push(`${at(path, key)}: unknown ${noun}`);
      else if (isSchema(schema.additionalProperties)) inside(schema.additionalProperties, key);
    }
    const required = new Set(listOf(schema.required));
    for (const key of new Set([...properties.keys(), ...required])) {
      if (given.has(key)) inside(properties.get(key) ?? true, key);
      else if (required.has(key)) {
        faults.push(`${at(path, key)}: missing, expected ${label(this.#plain(properties.get(key)))}`);
      }
    }
    for (const [key, needed] of Object.entries(schema.dependentRequired ?? {})) {
      for (const other of given.has(key) ? listOf(needed) : []) {
        if (!given.has(other)) faults.push(`${at(path, other)}: missing, "${key}" needs it`);
      }
    }
    for (const [key, inner] of Object.entries(schema.dependentSchemas ?? {})) {
      if (given.has(key)) faults.push(...this.check(inner, value, path, noun, depth));
    }
    return faults;
  }

  /**
   * @param {Schema} schema
   * @param {unknown[]} value
   * @param {string} path
   * @param {number} depth
   */
  #ofArray(schema, value, path, depth) {
    const { minItems: least, maxItems: most } = schema;
    if (least !== undefined && least === most && value.length !== most) {
      return [`${path}: expected array of ${most} items, got array of ${value.length}`];
    }
    const faults = bounds(path, " items", value.length, least, most);
    const first = listOf(schema.prefixItems);
    for (const [index, item] of value.entries()) {
      const inner = index < first.length ? first[index] : schema.items;
      if (isSchema(inner)) faults.push(...this.check(inner, item, `${path}[${index}]`, "property", depth));
    }
    if (schema.uniqueItems === true) {
      const isTwin = value.some((item, index) => value.slice(0, index).some((other) => isSame(other, item)));
      if (isTwin) faults.push(`${path}: the items must differ from each other`);
    }
    if (isSchema(schema.contains)) {
      const fitting = value.filter((item) => this.check(schema.contains, item, path, "property", depth).length === 0);
      faults.push(...bounds(path, " items of a kind", fitting.length, schema.minContains ?? 1, schema.maxContains));
    }
    return faults;
  }
}

/**
 * @param {Schema} schema
 * @param {number} value
 * @param {string} path
 */
function ofNumber(schema, value, path) {
  const shown = show(value);
  const faults = bounds(path, "", value, schema.minimum, schema.maximum, shown);
  const { exclusiveMinimum: above, exclusiveMaximum: below, multipleOf: step } = schema;
  if (typeof above === "number" && value <= above) faults.push(`${path}: expected more than ${above}, got ${shown}`);
  if (typeof below === "number" && value >= below) faults.push(`${path}: expected less than ${below}, got ${shown}`);
  // With a tolerance: in binary floating point, 0.3 / 0.1 is not an integer.
  const times = typeof step === "number" && step > 0 ? value / step : 0;
  if (Math.abs(times - Math.round(times)) > 1e-9 * Math.max(1, Math.abs(times))) {
    faults.push(`${path}: expected a multiple of ${step}, got ${shown}`);
  }
  return faults;
}

/**
 * @param {Schema} schema
 * @param {string} value
 * @param {string} path
 */
function ofString(schema, value, path) {
  const { minLength: least, maxLength: most } = schema;
  const faults = least === undefined && most === undefined ? [] : bounds(path, " characters", [...value].length, least, most);
  if (typeof schema.pattern === "string" && regex(schema.pattern)?.test(value) === false) {
    faults.push(`${path}: expected a string that matches ${schema.pattern}, got ${show(value)}`);
  }
  return faults;
}

/**
 * @param {string} path
 * @param {string} unit
 * @param {number} size
 * @param {unknown} least
 * @param {unknown} most
 * @param {string} [shown] the size as text
 */
function bounds(path, unit, size, least, most, shown = String(size)) {
  if (typeof least === "number" && size < least) return [`${path}: expected at least ${least}${unit}, got ${shown}`];
  if (typeof most === "number" && size > most) return [`${path}: expected at most ${most}${unit}, got ${shown}`];
  return [];
}

/**
 * @param {Schema} schema
 * @param {unknown} value
 */
function fits(schema, value) {
  const types = [schema.type ?? []].flat();
  const isOfType = types.length === 0 || types.includes(kindOf(value)) ||
    (types.includes("integer") && Number.isInteger(value));
  const isChosen = !Array.isArray(schema.enum) || schema.enum.some((choice) => isSame(choice, value));
  return isOfType && isChosen && (!("const" in schema) || isSame(schema.const, value));
}

/** @param {Schema} schema @returns {unknown[] | undefined} */
function choicesOf(schema) {
  return "const" in schema ? [schema.const] : Array.isArray(schema.enum) ? schema.enum : undefined;
}

/** A compiled pattern; undefined for one that JavaScript can't compile. @param {string} text */
function regex(text) {
  for (const flags of ["u", ""]) {
    try {
      return new RegExp(text, flags);
    } catch {
      // Without the `u` flag, more patterns compile.
    }
  }
  return undefined;
}

/**
 * @param {unknown} schema
 * @param {string} name
 * @returns {Schema | undefined}
 */
function anchored(schema, name) {
  if (typeof schema !== "object" || schema === null) return undefined;
  if (/** @type {Schema} */ (schema).$anchor === name) return schema;
  for (const inner of Object.values(schema)) {
    const found = anchored(inner, name);
    if (found) return found;
  }
  return undefined;
}

/** @param {unknown} value @returns {any[]} */
function listOf(value) {
  return Array.isArray(value) ? value : [];
}

/** @param {unknown} value @returns {value is Schema | boolean} */
function isSchema(value) {
  return typeof value === "boolean" || (typeof value === "object" && value !== null);
}
