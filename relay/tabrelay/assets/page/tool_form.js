/**
 * Form for the arguments of a tool, made from its JSON schema.
 *
 * Texts, numbers, integers, booleans and enumerations get a control of their own; arrays, objects and everything else a field for
 * JSON. The form checks what a browser's form can check. The worker validates the arguments again when the tool is called.
 */

import { element } from "./element.js";

/**
 * @typedef {Record<string, any>} Schema
 * @typedef {"text" | "long_text" | "number" | "integer" | "boolean" | "choice" | "json"} FieldKind
 * @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control
 */

/** A text that may be longer than this gets several lines. */
const LONG_TEXT = 200;

/**
 * @param {Schema} schema of one argument
 * @returns {FieldKind}
 */
function fieldKind(schema) {
  if (Array.isArray(schema.enum) || "const" in schema) return "choice";
  const types = new Set(typesOf(schema).filter((type) => type !== "null"));
  if (types.size === 1 && types.has("integer")) return "integer";
  if (types.size && [...types].every((type) => type === "number" || type === "integer")) return "number";
  if (types.size !== 1) return "json";
  if (types.has("boolean")) return "boolean";
  if (types.has("string")) return schema.maxLength > LONG_TEXT || schema.format === "multiline" ? "long_text" : "text";
  return "json";
}

/**
 * The value of what was typed. Undefined: nothing was typed, and the argument is left out. Throws a SyntaxError for bad JSON.
 *
 * @param {FieldKind} kind
 * @param {string} typed
 * @returns {unknown}
 */
function fieldValue(kind, typed) {
  if (typed === "") return undefined;
  if (kind === "text" || kind === "long_text") return typed;
  return kind === "number" || kind === "integer" ? Number(typed) : JSON.parse(typed);
}

/**
 * @param {Schema | undefined} schema a tool's `inputSchema`
 * @param {Record<string, unknown>} [values] shown at first, before the schema's defaults
 */
export function toolForm(schema, values = {}) {
  const required = new Set(schema?.required ?? []);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, property]) =>
    makeField(name, resolved(property, schema ?? {}), required.has(name), values[name]),
  );
  const root = element("div", { class: "tool-form stack" }, ...fields.map(({ label }) => label));
  return {
    element: root,

    /** Does the tool take no arguments? */
    isEmpty: fields.length === 0,

    /** The arguments; null if a field is wrong, which the browser then shows. @returns {Record<string, unknown> | null} */
    read() {
      /** @type {Record<string, unknown>} */
      const found = {};
      for (const field of fields) {
        if (!field.check()) return null;
        const value = field.value();
        if (value !== undefined) found[field.name] = value;
      }
      return found;
    },

    /** @param {Record<string, unknown>} next */
    fill(next) {
      for (const field of fields) if (field.name in next) field.set(next[field.name]);
    },
  };
}

/**
 * @param {string} name
 * @param {Schema} schema
 * @param {boolean} isRequired
 * @param {unknown} given
 */
function makeField(name, schema, isRequired, given) {
  const kind = fieldKind(schema);
  const control = makeControl(kind, name, schema, isRequired);
  let isTouched = false;
  control.addEventListener("input", () => {
    isTouched = true;
    control.setCustomValidity("");
  });
  const title = element("span", { class: "field-name" }, schema.title ?? name, isRequired ? null : element("span", { class: "count" }, " optional"));
  const hint = schema.description ? element("span", { class: "field-hint" }, String(schema.description)) : null;
  const label = element("label", { class: "field", "data-kind": kind }, title, control, hint);

  /** @param {unknown} value */
  const set = (value) => {
    isTouched = true;
    if (control instanceof HTMLInputElement && kind === "boolean") control.checked = value === true;
    else if (value === undefined) control.value = "";
    else control.value = kind === "json" || kind === "choice" ? JSON.stringify(value) : String(value);
  };
  const initial = given === undefined ? schema.default : given;
  if (initial !== undefined && initial !== null) set(initial);

  return {
    name,
    label,
    set,
    value() {
      if (control instanceof HTMLInputElement && kind === "boolean") return isTouched || isRequired ? control.checked : undefined;
      return fieldValue(kind, control.value);
    },
    check() {
      if (kind === "json") control.setCustomValidity(jsonProblem(control.value));
      return control.reportValidity();
    },
  };
}

/**
 * @param {FieldKind} kind
 * @param {string} name
 * @param {Schema} schema
 * @param {boolean} isRequired
 * @returns {Control}
 */
function makeControl(kind, name, schema, isRequired) {
  const common = { name, required: isRequired };
  const { minLength, maxLength, pattern } = schema;
  switch (kind) {
    case "boolean":
      return element("input", { type: "checkbox", name });
    case "choice": {
      const values = "const" in schema ? [schema.const] : schema.enum;
      const options = values.map((/** @type {unknown} */ value) => element("option", { value: JSON.stringify(value) }, String(value)));
      return element("select", common, isRequired ? null : element("option", { value: "" }, "(none)"), ...options);
    }
    case "number":
    case "integer": {
      const limits = { min: schema.minimum, max: schema.maximum, step: kind === "integer" ? 1 : "any" };
      return element("input", { type: "number", inputmode: "decimal", autocomplete: "off", ...common, ...limits });
    }
    case "text":
      return element("input", { type: "text", autocomplete: "off", minlength: minLength, maxlength: maxLength, pattern, ...common });
    case "long_text":
      return element("textarea", { rows: 4, minlength: minLength, maxlength: maxLength, ...common });
    case "json":
      return element("textarea", { rows: 2, class: "mono", spellcheck: "false", placeholder: "JSON", ...common });
  }
}

/** @param {string} typed */
function jsonProblem(typed) {
  try {
    fieldValue("json", typed);
    return "";
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : error}`;
  }
}

/** @param {Schema} schema @returns {string[]} empty: of any type */
function typesOf(schema) {
  if (schema.type !== undefined) return [schema.type].flat();
  const branches = schema.anyOf ?? schema.oneOf ?? [];
  return branches.flatMap((/** @type {Schema} */ branch) => (branch.type === undefined ? ["any"] : [branch.type].flat()));
}

/**
 * A schema with the definition that it refers to. Only references within the schema itself (`#/$defs/…`) are followed, one step.
 *
 * @param {Schema | boolean} schema
 * @param {Schema} root
 * @returns {Schema}
 */
function resolved(schema, root) {
  if (typeof schema !== "object") return {};
  const path = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(schema.$ref ?? "");
  const target = path?.[1] && path[2] ? root[path[1]]?.[path[2]] : undefined;
  return target && typeof target === "object" ? { ...target, ...schema } : schema;
}
