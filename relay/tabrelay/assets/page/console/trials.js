/**
 * What the try form runs for a tool, a resource, a template, a prompt, and for a captured call that is sent again. Pure functions.
 */

import { PROMPTS_GET, RESOURCES_READ, TOOLS_CALL } from "../mcp_methods.js";

/**
 * @typedef {import("./try_form.js").Trial} Trial
 * @typedef {{ id: string, title: string }} Tab
 */

const VARIABLE = /\{[+#./;?&]?([\w,*.:-]+)\}/gu;

/** @param {string} server @param {import("./tool_list.js").Tool} tool @param {Tab[]} tabs @returns {Trial} */
export function toolTrial(server, { name, inputSchema, annotations }, tabs) {
  return {
    server,
    method: TOOLS_CALL,
    ...(inputSchema ? { schema: inputSchema } : {}),
    params: (values) => ({ name, arguments: values }),
    fields: (params) => params.arguments ?? {},
    note: annotations?.destructiveHint ? "This tool is destructive. Its tab asks before it runs." : "",
    tabs: tabs.length > 1 ? tabs : [],
  };
}

/** @param {string} server @param {string} uri @returns {Trial} */
export function resourceTrial(server, uri) {
  return { server, method: RESOURCES_READ, params: () => ({ uri }) };
}

/** @param {string} server @param {string} uriTemplate @returns {Trial} */
export function templateTrial(server, uriTemplate) {
  const names = variablesOf(uriTemplate);
  return {
    server,
    method: RESOURCES_READ,
    schema: textSchema(names.map((name) => ({ name, required: true }))),
    params: (values) => ({ uri: expanded(uriTemplate, values) }),
    complete: { type: "ref/resource", uri: uriTemplate },
  };
}

/** @param {string} server @param {Record<string, any>} prompt @returns {Trial} */
export function promptTrial(server, prompt) {
  return {
    server,
    method: PROMPTS_GET,
    schema: textSchema(prompt.arguments ?? []),
    params: (values) => ({ name: prompt.name, ...(Object.keys(values).length ? { arguments: values } : {}) }),
    fields: (params) => params.arguments ?? {},
    complete: { type: "ref/prompt", name: prompt.name },
  };
}

/**
 * A captured call, to be edited and sent again.
 *
 * @param {import("./relay_api.js").Detail} detail
 * @param {Record<string, any> | undefined} schema of the tool, if it is known
 * @param {Tab[]} tabs
 * @returns {Trial}
 */
export function resendTrial({ row, request }, schema, tabs) {
  const { _meta: _, inputResponses: __, requestState: ___, ...params } = request.params ?? {};
  const isTool = row.method === TOOLS_CALL;
  const values = isTool ? (params.arguments ?? {}) : params;
  return {
    server: row.server,
    method: row.method,
    of: row.id,
    schema: schema ?? schemaOf(values),
    values,
    params: (fields) => (isTool ? { ...params, arguments: fields } : fields),
    fields: (next) => (isTool ? (next.arguments ?? {}) : next),
    note: "Hidden values ([redacted]) are sent as in the original call, unless you change them.",
    tabs,
  };
}

/** A schema of values, for a form without a schema. @param {Record<string, unknown>} values */
function schemaOf(values) {
  const type = (/** @type {unknown} */ value) => (typeof value === "string" ? "string" : typeof value === "boolean" ? "boolean" : typeof value === "number" ? "number" : undefined);
  const properties = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, type(value) ? { type: type(value) } : {}]));
  return { type: "object", properties };
}

/** @param {{ name: string, description?: string, required?: boolean }[]} args */
function textSchema(args) {
  const properties = Object.fromEntries(args.map(({ name, description }) => [name, { type: "string", ...(description ? { description } : {}) }]));
  return { type: "object", properties, required: args.filter(({ required }) => required).map(({ name }) => name) };
}

/** @param {string} template */
function variablesOf(template) {
  return [...template.matchAll(VARIABLE)].flatMap(([, names = ""]) => names.split(",").map((name) => name.replace(/[*:].*$/u, "")));
}

/** Simple expansion of RFC 6570: values are encoded, except for `{+name}`. @param {string} template @param {Record<string, unknown>} values */
export function expanded(template, values) {
  return template.replaceAll(VARIABLE, (all, /** @type {string} */ names) => {
    const isRaw = all.startsWith("{+");
    const isQuery = all.startsWith("{?") || all.startsWith("{&");
    const parts = names.split(",").map((name) => name.replace(/[*:].*$/u, "")).filter((name) => values[name] !== undefined);
    const texts = parts.map((name) => {
      const text = isRaw ? String(values[name]) : encodeURIComponent(String(values[name]));
      return isQuery ? `${name}=${text}` : text;
    });
    return isQuery && texts.length ? `${all[1]}${texts.join("&")}` : texts.join(",");
  });
}
