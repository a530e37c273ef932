/**
 * Checks a call's arguments against the input schema of a tab's tool, with faults that name the path.
 *
 * The keywords that people write by hand, no more: what it does not know (`$ref`, `anyOf`, `format`, …) it lets pass, so
 * a tool must not rely on it for safety. Python tools are checked in Python, with the same words.
 */

/** @typedef {Record<string, any>} Schema */

/**
 * @param {Schema} schema
 * @param {unknown} value
 * @param {string} [path]
 * @param {string} [noun]
 * @returns {string[]} what is wrong, one line each
 */
export function check(schema, value, path = "arguments", noun = "argument") {
  if (!fits(schema, value)) return [`${path}: expected ${label(schema)}, got ${show(value)}`];
  if (typeof value === "object" && value !== null) {
    return Array.isArray(value) ? checkArray(schema, value, path) : checkObject(schema, value, path, noun);
  }
  return checkBounds(schema, value, path);
}

/**
 * @param {Schema} schema
 * @param {object} value
 * @param {string} path
 * @param {string} noun
 */
function checkObject(schema, value, path, noun) {
  const given = new Map(Object.entries(value));
  const properties = /** @type {[string, Schema][]} */ (Object.entries(schema.properties ?? {}));
  const known = new Set(properties.map(([key]) => key));
  const rest = schema.additionalProperties;
  const faults = [];
  for (const [key, item] of given) {
    if (known.has(key)) continue;
    if (rest === false) faults.push(`${at(path, key)}: unknown ${noun}`);
    else if (typeof rest === "object") faults.push(...check(rest, item, at(path, key), "property"));
  }
  for (const key of schema.required ?? []) {
    if (!given.has(key)) faults.push(`${at(path, key)}: missing, expected ${label(schema.properties?.[key] ?? {})}`);
  }
  for (const [key, inner] of properties) {
    if (given.has(key)) faults.push(...check(inner, given.get(key), at(path, key), "property"));
  }
  return faults;
}

/**
 * @param {Schema} schema
 * @param {unknown[]} value
 * @param {string} path
 */
function checkArray(schema, value, path) {
  const faults = bounds(path, " items", value.length, schema.minItems, schema.maxItems);
  if (typeof schema.items !== "object") return faults;
  return faults.concat(value.flatMap((item, index) => check(schema.items, item, `${path}[${index}]`, "property")));
}

/**
 * @param {Schema} schema
 * @param {unknown} value
 * @param {string} path
 */
function checkBounds(schema, value, path) {
  if (typeof value === "number") return bounds(path, "", value, schema.minimum, schema.maximum);
  if (typeof value !== "string") return [];
  const faults = bounds(path, " characters", [...value].length, schema.minLength, schema.maxLength);
  if (typeof schema.pattern === "string" && !new RegExp(schema.pattern, "u").test(value)) {
    faults.push(`${path}: expected a string that matches ${schema.pattern}, got ${show(value)}`);
  }
  return faults;
}

/**
 * @param {string} path
 * @param {string} unit
 * @param {number} size
 * @param {number | undefined} least
 * @param {number | undefined} most
 */
function bounds(path, unit, size, least, most) {
  if (least !== undefined && size < least) return [`${path}: expected at least ${least}${unit}, got ${size}`];
  if (most !== undefined && size > most) return [`${path}: expected at most ${most}${unit}, got ${size}`];
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

/**
 * @param {unknown} one
 * @param {unknown} other
 */
function isSame(one, other) {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** @param {Schema} schema */
function label(schema) {
  if ("const" in schema) return JSON.stringify(schema.const);
  if (Array.isArray(schema.enum)) return `one of ${schema.enum.map((choice) => JSON.stringify(choice)).join(", ")}`;
  return [schema.type ?? "a value"].flat().join(" or ");
}

/** @param {unknown} value */
function kindOf(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** @param {unknown} value */
function show(value) {
  const kind = kindOf(value);
  if (kind === "null" || kind === "array" || kind === "object") return kind;
  const text = JSON.stringify(value);
  return `${kind} ${text.length <= 42 ? text : `${text.slice(0, 40)}…`}`;
}

/**
 * @param {string} path
 * @param {string} key
 */
function at(path, key) {
  return /^[\p{L}_][\p{L}\p{N}_]*$/u.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}
