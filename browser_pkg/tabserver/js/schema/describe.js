/**
 * Texts for schema faults: values, types and paths in words; and equality of JSON values.
 *
 * Python's `schema` package uses the same texts. It checks nothing: validate.js does.
 */

/** @typedef {Record<string, any>} Schema */

/**
 * Equality of JSON Schema: the order of an object's members does not matter.
 * @param {unknown} one
 * @param {unknown} other
 * @returns {boolean}
 */
export function isSame(one, other) {
  if (one === other) return true;
  if (kindOf(one) !== kindOf(other) || typeof one !== "object" || one === null) return false;
  const mine = Object.entries(one);
  const theirs = /** @type {Record<string, unknown>} */ (other);
  return mine.length === Object.keys(theirs).length &&
    mine.every(([key, value]) => Object.hasOwn(theirs, key) && isSame(value, theirs[key]));
}

/** @param {Schema} schema @returns {string} */
export function label(schema) {
  if ("const" in schema) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return `one of ${schema.enum.map((choice) => JSON.stringify(choice)).join(", ")}`;
  if (schema.type === "string" && typeof schema.format === "string") return `${schema.format} string`;
  return [schema.type ?? "a value"].flat().join(" or ");
}

/** @param {unknown} value */
export function kindOf(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** @param {unknown} value */
export function show(value) {
  const kind = kindOf(value);
  if (kind === "null" || kind === "array" || kind === "object") return kind;
  const text = JSON.stringify(value);
  return `${kind} ${text.length <= 42 ? text : `${text.slice(0, 40)}…`}`;
}

/**
 * @param {string} path
 * @param {string} key
 */
export function at(path, key) {
  return /^[\p{L}_][\p{L}\p{N}_]*$/u.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}
