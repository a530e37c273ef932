/**
 * Lint of a tool list: what a model or a client stumbles over. Pure functions.
 *
 * Findings are hints, not errors: missing and near-identical descriptions, schemas that clients cannot fill, and lists that cost many
 * tokens.
 */

import { tokensOf } from "./token_estimate.js";

/**
 * @typedef {import("./tool_list.js").Tool} Tool
 * @typedef {{ tool: string, rule: string, text: string }} Finding
 */

const NAME = /^[A-Za-z0-9_-]{1,64}$/u;
const SHORT = 12;
const LONG = 1024;
const ALIKE = 0.8;
const MANY_TOOLS = 40;
const MANY_TOKENS = 1000;
const MANY_TOKENS_IN_ALL = 15_000;
const DEEP = 4;

/** @param {readonly Tool[]} tools @returns {Finding[]} */
export function lintTools(tools) {
  return [...tools.flatMap(lintTool), ...alike(tools), ...wholeList(tools)];
}

/** @param {Tool} tool @returns {Finding[]} */
function lintTool(tool) {
  const { name, description = "", inputSchema } = tool;
  /** @type {[string, string][]} */
  const found = [];
  if (!NAME.test(name)) found.push(["name", "Some clients accept only letters, digits, _ and - in names, up to 64."]);
  if (!description.trim()) found.push(["description", "It has no description. A model chooses tools by it."]);
  else if (description.trim().length < SHORT) found.push(["description", "Its description is very short."]);
  else if (description.length > LONG) found.push(["description", `Its description has ${description.length} characters. Some clients cut it at ${LONG}.`]);
  if (tokensOf(tool) > MANY_TOKENS) found.push(["tokens", `It costs about ${tokensOf(tool)} tokens in every request of a model.`]);
  return [...found, ...(inputSchema ? lintSchema(inputSchema) : [])].map(([rule, text]) => ({ tool: name, rule, text }));
}

/** @param {Record<string, any>} schema @returns {[string, string][]} */
function lintSchema(schema) {
  /** @type {[string, string][]} */
  const found = [];
  if (schema.type !== "object") found.push(["schema", "Its schema is not of the type object."]);
  for (const word of ["anyOf", "oneOf", "allOf", "not", "if"]) if (word in schema) found.push(["schema", `“${word}” at the top of the schema: several models' function calling refuses it.`]);
  const properties = schema.properties ?? {};
  for (const name of schema.required ?? []) if (!(name in properties)) found.push(["schema", `“${name}” is required and not described.`]);
  for (const [name, property] of Object.entries(properties)) found.push(...lintProperty(name, property));
  return found;
}

/** @param {string} name @param {any} property @returns {[string, string][]} */
function lintProperty(name, property) {
  if (property === true || !property || typeof property !== "object") return [["schema", `“${name}” has no schema: clients cannot make a field for it.`]];
  /** @type {[string, string][]} */
  const found = [];
  const kinds = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"];
  if (!kinds.some((kind) => kind in property)) found.push(["schema", `“${name}” has no type: clients cannot make a field for it.`]);
  if (property.type === "array" && !property.items && !property.prefixItems) found.push(["schema", `“${name}” is a list without “items”.`]);
  if (property.type === "object" && !property.properties && property.additionalProperties === undefined) found.push(["schema", `“${name}” is an object whose members are not described.`]);
  if (Array.isArray(property.enum) && property.enum.length === 0) found.push(["schema", `“${name}” allows no value.`]);
  if (typeof property.$ref === "string" && !property.$ref.startsWith("#")) found.push(["schema", `“${name}” refers to another document.`]);
  if (depthOf(property) > DEEP) found.push(["schema", `“${name}” is nested more than ${DEEP} levels deep.`]);
  if (!property.description && !property.title) found.push(["argument", `“${name}” has no description.`]);
  return found;
}

/** @param {any} schema @param {number} [level] @returns {number} */
function depthOf(schema, level = 0) {
  if (!schema || typeof schema !== "object" || level > DEEP + 1) return level;
  const inner = [...Object.values(schema.properties ?? {}), ...(schema.items ? [schema.items] : [])];
  return inner.reduce((deepest, each) => Math.max(deepest, depthOf(each, level + 1)), level);
}

/** @param {readonly Tool[]} tools @returns {Finding[]} */
function alike(tools) {
  const words = tools.map(({ description = "" }) => new Set(description.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []));
  /** @type {Finding[]} */
  const found = [];
  for (let a = 0; a < tools.length; a++) {
    for (let b = a + 1; b < tools.length; b++) {
      const [one, two] = [words[a] ?? new Set(), words[b] ?? new Set()];
      if (!one.size || !two.size) continue;
      const common = [...one].filter((word) => two.has(word)).length;
      if (common / (one.size + two.size - common) < ALIKE) continue;
      const first = tools[a];
      const second = tools[b];
      if (first && second) found.push({ tool: second.name, rule: "alike", text: `Its description is almost that of “${first.name}”: a model cannot tell them apart.` });
    }
  }
  return found;
}

/** @param {readonly Tool[]} tools @returns {Finding[]} */
function wholeList(tools) {
  /** @type {Finding[]} */
  const found = [];
  const total = tools.reduce((sum, tool) => sum + tokensOf(tool), 0);
  if (tools.length > MANY_TOOLS) found.push({ tool: "", rule: "many", text: `${tools.length} tools: some clients use only the first ${MANY_TOOLS}.` });
  if (total > MANY_TOKENS_IN_ALL) found.push({ tool: "", rule: "tokens", text: `The list costs about ${total} tokens in every request of a model.` });
  return found;
}
