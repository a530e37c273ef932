/**
 * One line of text for a call and for its result: `add(2, 3)` and `5`.
 *
 * Pure functions of what the worker reports. Long texts are cut: the list of tools shows whole results.
 */

const MAX_VALUE = 48;
const MAX_LINE = 160;

/**
 * @param {string} name
 * @param {string | Record<string, unknown> | undefined} args an object, or its JSON text, which may be cut
 * @returns {string} with names if there are more than two arguments
 */
export function callText(name, args) {
  const known = typeof args === "string" ? parsed(args) : args;
  if (known === undefined) return `${name}(${args ? "…" : ""})`;
  const entries = Object.entries(known);
  const values = entries.map(([key, value]) => (entries.length > 2 ? `${key}=${valueText(value)}` : valueText(value)));
  return cut(`${name}(${values.join(", ")}`, MAX_LINE - 1) + ")";
}

/**
 * @param {string | undefined} result the texts of a result
 * @returns {string}
 */
export function resultLine(result) {
  return result ? cut(result.replace(/\s+/g, " ").trim(), MAX_LINE) : "done";
}

/** @param {string} json @returns {Record<string, unknown> | undefined} */
function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** @param {unknown} value */
function valueText(value) {
  return cut(JSON.stringify(value) ?? "…", MAX_VALUE);
}

/** @param {string} text @param {number} most */
function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
