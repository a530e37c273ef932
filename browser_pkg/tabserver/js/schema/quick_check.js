/**
 * Fast schema check without fault texts: true only for a value that is certainly valid.
 *
 * It covers the few keywords that most tools use and returns false for any other keyword. `schema/validate.js` then checks in
 * full and describes the faults.
 */

/** @typedef {import("./describe.js").Schema} Schema */

/**
 * @param {Schema | boolean} schema references are not followed
 * @param {any} value a JSON value
 * @returns {boolean} false: it may still be valid
 */
export function certainlyValid(schema, value) {
  if (typeof schema !== "object" || schema === null) return schema === true;
  for (const keyword in schema) {
    if (!satisfies(schema, keyword, value)) return false;
  }
  return true;
}

/**
 * @param {Schema} schema
 * @param {string} keyword
 * @param {any} value
 */
function satisfies(schema, keyword, value) {
  const wanted = schema[keyword];
  switch (keyword) {
    case "type":
      return isOfType(wanted, value);
    case "properties":
      return !isObject(value) || hasProperties(wanted, value);
    case "required":
      return !isObject(value) || (Array.isArray(wanted) && wanted.every((key) => Object.hasOwn(value, key)));
    case "additionalProperties":
      return wanted === true || !isObject(value) || (wanted === false && isWithin(schema.properties, value));
    case "items":
      return !Array.isArray(value) || value.every((item) => certainlyValid(wanted, item));
    case "enum":
      return Array.isArray(wanted) && wanted.includes(value);
    case "minimum":
      return typeof value !== "number" || value >= wanted;
    case "maximum":
      return typeof value !== "number" || value <= wanted;
    case "minLength": // counts code points, each of which is one or two units of `length`
      return typeof value !== "string" || value.length >= (wanted === 1 ? 1 : 2 * wanted);
    case "maxLength":
      return typeof value !== "string" || value.length <= wanted;
    case "$schema":
    case "title":
    case "description":
    case "default":
    case "examples":
    case "format":
      return true;
  }
  return false;
}

/**
 * @param {unknown} type
 * @param {unknown} value
 */
function isOfType(type, value) {
  switch (type) {
    case "string":
    case "number":
    case "boolean":
      return typeof value === type;
    case "integer":
      return Number.isInteger(value);
    case "object":
      return isObject(value);
    case "array":
      return Array.isArray(value);
  }
  return false;
}

/**
 * @param {Record<string, Schema | boolean>} properties
 * @param {Record<string, any>} value
 */
function hasProperties(properties, value) {
  for (const key in properties) {
    if (Object.hasOwn(value, key) && !certainlyValid(/** @type {Schema} */ (properties[key]), value[key])) return false;
  }
  return true;
}

/**
 * @param {object | undefined} properties
 * @param {Record<string, any>} value
 */
function isWithin(properties, value) {
  for (const key in value) {
    if (!properties || !Object.hasOwn(properties, key)) return false;
  }
  return true;
}

/** @param {unknown} value @returns {value is Record<string, any>} */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
