/**
 * JSON text of what handlers return, and a sentence for each value that has no JSON form.
 *
 * `JSON.stringify` writes a Map as `{}` and NaN as `null`, without an error. So after it has succeeded, which excludes cycles, the
 * value is walked once for such members. The walk allocates nothing. The sentence is made only for a value that fails it.
 */

import { InvalidResult } from "./errors.js";

/** A handler returned a value that has no JSON form. The message says what to return. */
export class UnwritableValue extends InvalidResult {}

/** How Chromium, Safari and Firefox report that the stack is full. */
const OVERFLOW = /call stack size exceeded|too much recursion/;

/**
 * The JSON text of a value. Throws UnwritableValue.
 * @param {unknown} value
 * @param {string} owner `Tool "add"`
 * @returns {string}
 */
export function writeJson(value, owner) {
  try {
    return writeOrRefuse(value, owner);
  } catch (error) {
    if (!OVERFLOW.test(String(error))) throw error;
    throw new UnwritableValue(`${owner} returned a value that nests too deeply. Return a flat list, or only its upper levels.`);
  }
}

/**
 * @param {unknown} value
 * @param {string} owner
 * @returns {string}
 */
function writeOrRefuse(value, owner) {
  let json;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw problemOf(value, owner) ?? error; // a `toJSON` or a getter of the value has thrown
  }
  if (json !== undefined && isWritable(value)) return json;
  throw problemOf(value, owner) ?? new UnwritableValue(`${owner} returned a value without a JSON form. Return a plain object.`);
}

/**
 * Does JSON keep this value? Members that are undefined are left out, as usual; the value has no cycles.
 * @param {any} value
 * @returns {boolean}
 */
function isWritable(value) {
  switch (typeof value) {
    case "string":
    case "boolean":
      return true;
    case "number":
      return value - value === 0; // neither NaN nor infinite
    case "object":
      break;
    default:
      return false;
  }
  if (value === null) return true;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) if (!isWritable(value[index])) return false;
    return true;
  }
  if (typeof value.toJSON === "function") return isWrittenByItself(value);
  if (!isPlain(value) && (Object.prototype.toString.call(value) !== "[object Object]" || Object.keys(value).length === 0)) {
    return isBoxed(value);
  }
  for (const name in value) {
    const member = value[name];
    if (member !== undefined && !isWritable(member)) return false;
  }
  return true;
}

/** An object of `{}` or of another window. @param {object} value */
function isPlain(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** @param {any} value */
function isWrittenByItself(value) {
  if (value instanceof Date) return !Number.isNaN(value.getTime());
  const written = value.toJSON();
  return typeof written === "object" && written !== null && typeof written.toJSON === "function" ? true : isWritable(written);
}

/** `new String("x")` and the like. @param {any} value */
function isBoxed(value) {
  return (value instanceof String || value instanceof Boolean || value instanceof Number) && isWritable(value.valueOf());
}

/**
 * The sentence for the first member without a JSON form.
 * @param {unknown} value
 * @param {string} owner
 */
function problemOf(value, owner) {
  const found = findUnwritable(value, "result", []);
  if (!found) return undefined;
  const { path, kind, advice } = found;
  const where = path === "result" ? "" : ` at ${path}`;
  return new UnwritableValue(`${owner} returned ${kind}${where}, which has no JSON form. ${advice}`);
}

/**
 * @typedef {{ path: string, kind: string, advice: string }} Unwritable
 * @param {any} value
 * @param {string} path
 * @param {object[]} parents
 * @returns {Unwritable | undefined}
 */
function findUnwritable(value, path, parents) {
  if (typeof value !== "object" || value === null) {
    return isWritable(value) ? undefined : { path, ...describePrimitive(value) };
  }
  if (parents.includes(value)) {
    return { path, kind: "an object that contains itself", advice: "Return a copy without the member that leads back." };
  }
  const isList = Array.isArray(value);
  if (!isList && typeof value.toJSON === "function") return isWrittenByItself(value) ? undefined : { path, ...describeObject(value) };
  const isOpen = isList || isPlain(value)
    || (Object.prototype.toString.call(value) === "[object Object]" && Object.keys(value).length > 0);
  if (!isOpen) return isBoxed(value) ? undefined : { path, ...describeObject(value) };
  const inner = [...parents, value];
  // Not the keys: an array may have gaps.
  const names = isList ? [...value.keys()] : Object.keys(value);
  for (const name of names) {
    if (!isList && value[name] === undefined) continue;
    const found = findUnwritable(value[name], isList ? `${path}[${name}]` : `${path}.${name}`, inner);
    if (found) return found;
  }
  return undefined;
}

/** @param {unknown} value */
function describePrimitive(value) {
  switch (typeof value) {
    case "number":
      return { kind: String(value), advice: "Return a finite number, null or a text." };
    case "bigint":
      return { kind: "a BigInt", advice: "Return String(value), or Number(value) if it is small." };
    case "symbol":
      return { kind: "a symbol", advice: "Return its description." };
    case "function":
      return { kind: "a function", advice: "Return what the function returns." };
    default:
      return { kind: "undefined", advice: "Return null in its place, or leave it out." };
  }
}

/** What to return instead, by class. A class comes before those that it extends. @type {[string, string][]} */
const ADVICE = [
  ["Node", "Return its text (node.textContent), its markup (node.outerHTML) or the attributes that matter."],
  ["NodeList", "Return the texts: [...nodes].map((node) => node.textContent)."],
  ["HTMLCollection", "Return the texts: [...nodes].map((node) => node.textContent)."],
  ["Window", "Return the values that matter in a plain object."],
  ["Event", "Return the values that matter in a plain object."],
  ["Map", "Return Object.fromEntries(map), or [...map]."],
  ["Set", "Return [...set]."],
  ["WeakMap", "Return the values that matter in a plain object."],
  ["WeakSet", "Return the values that matter in an array."],
  ["Promise", "Await it first."],
  ["Date", "The date is invalid: check it with Number.isNaN(date.getTime())."],
  ["RegExp", "Return its source."],
  ["Error", "Throw it, or return its message."],
  ["Blob", "Return it by itself, or in an array of content."],
  ["ArrayBuffer", "Return new Blob([buffer]), or an array of numbers."],
  ["DataView", "Return new Blob([view]), or an array of numbers."],
  ["Response", "Return await response.json(), or await response.text()."],
  ["FormData", "Return Object.fromEntries(data)."],
  ["URLSearchParams", "Return Object.fromEntries(params), or String(params)."],
  ["Headers", "Return Object.fromEntries(headers)."],
];

/** @param {object} value */
function describeObject(value) {
  const name = nameOf(value);
  const kind = `${/^[AEIO]/.test(name) ? "an" : "a"} ${name}`;
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return { kind, advice: "Return [...array], or new Blob([array]) for bytes." };
  }
  const known = ADVICE.find(([type]) => isInstance(value, type));
  if (known) return { kind, advice: known[1] };
  return { kind, advice: "Return the values that matter in a plain object." };
}

/**
 * @param {object} value
 * @param {string} type a class that a browser may not have
 */
function isInstance(value, type) {
  const known = /** @type {any} */ (globalThis)[type];
  return typeof known === "function" && value instanceof known;
}

/** @param {any} value */
function nameOf(value) {
  const name = value.constructor?.name;
  return typeof name === "string" && name && name !== "Object" ? name : Object.prototype.toString.call(value).slice(8, -1);
}
