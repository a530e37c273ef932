/**
 * Offers of one tab: tools, resources, templates and prompts, with their handlers.
 *
 * The worker gets their definitions as JSON data; the functions stay here. A call's arguments and a tool's result are checked
 * against the schemas. It does not decide whether a call may run: the worker does.
 *
 * @import { CallContext, Catalogue, Completer, Prompt, PromptDefinition, Resource, Tool, ToolDefinition } from "../client.js"
 * @import { CallMessage, OfferKind, Offers as Offered } from "../ports.js"
 */

import { InvalidArguments, InvalidParams, InvalidResult, invalidParams, RefusedOffer, ResourceNotFound } from "./errors.js";
import { isPending, jsonCopy, resultOf, resultText, toCompletion, toContents, toMessages } from "./results.js";
import { isInputRequired } from "./running_calls.js";
import { nearest } from "./options.js";
import { toolMeta } from "./tool_meta.js";
import { ToolWarnings } from "./tool_warnings.js";
import { certainlyValid } from "../schema/quick_check.js";
import { check } from "../schema/validate.js";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;
// The limits of schema/size_caps.py. The relay leaves out larger definitions without an error, so they are refused here.
const MAX_TITLE = 256;
const MAX_DESCRIPTION = 8192;
const MAX_DEPTH = 32;
const CONTROL_CHARACTERS =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|[\u{e0000}-\u{e007f}]/u;
/** May calls of a tool run as tasks? A tool without this can't. */
const TASK_SUPPORT = ["optional", "required"];
const SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;

/** @typedef {Tool | Resource | Prompt} Item */
/**
 * `omitsNull`: the arguments for which null means the same as leaving them out, although their schema does not allow null.
 * The Python of pages names those whose default is None.
 * @typedef {Tool & { omitsNull?: string[] }} OfferedTool
 */

export class Offers {
  /** @type {Record<OfferKind, Map<string, any>>} */
  #items = { tools: new Map(), resources: new Map(), templates: new Map(), prompts: new Map() };
  #warnings = new ToolWarnings();
  /** When each was first offered, by kind and key. @type {Map<string, number>} */
  #since = new Map();

  /** @param {Tool} tool */
  addTool(tool) {
    if (!NAME.test(tool?.name ?? "")) {
      const name = JSON.stringify(tool?.name);
      throw new RefusedOffer(`A tool needs a name of letters, digits, "_", "." and "-", not ${name}`);
    }
    requireFunction(tool, "execute", `Tool "${tool.name}"`);
    for (const member of /** @type {const} */ (["title", "description"])) {
      if (typeof (tool[member] ?? "") !== "string") throw new RefusedOffer(`Tool "${tool.name}": ${member} must be text`);
    }
    checkCaps(tool, `Tool "${tool.name}"`);
    if (tool.task !== undefined && !TASK_SUPPORT.includes(tool.task)) {
      throw new RefusedOffer(`Tool "${tool.name}": task must be "optional" or "required", not ${JSON.stringify(tool.task)}`);
    }
    this.#warnings.check(tool, this.#items.tools.get(tool.name));
    return this.#add("tools", tool.name, tool);
  }

  /** Log which tools have the name of a worker's tool. @param {Catalogue} catalogue */
  compareNames(catalogue) {
    this.#warnings.compareNames(this.#items.tools, catalogue.tools);
  }

  /** @param {Resource} resource */
  addResource(resource) {
    const uri = resource?.uri;
    if (!SCHEME.test(uri ?? "")) {
      throw new RefusedOffer(`A resource needs a URI with a scheme, such as notes://today, not ${JSON.stringify(uri)}`);
    }
    requireFunction(resource, "read", `Resource ${uri}`);
    checkCaps(resource, `Resource ${uri}`);
    return this.#add(/[{}]/.test(uri) ? "templates" : "resources", uri, resource);
  }

  /** @param {Prompt} prompt */
  addPrompt(prompt) {
    if (typeof prompt?.name !== "string" || !prompt.name) throw new RefusedOffer("A prompt needs a name");
    if (prompt.name.length > 128) throw new RefusedOffer("A prompt's name has at most 128 characters");
    requireFunction(prompt, "get", `Prompt "${prompt.name}"`);
    checkCaps(prompt, `Prompt "${prompt.name}"`);
    return this.#add("prompts", prompt.name, prompt);
  }

  /**
   * Withdraw an item, unless another one of the same name has replaced it.
   * @param {OfferKind} kind
   * @param {string} key
   * @param {Item} item
   */
  remove(kind, key, item) {
    if (this.#items[kind].get(key) !== item) return false;
    this.#since.delete(`${kind} ${key}`);
    return this.#items[kind].delete(key);
  }

  /** The definitions of all items, for the worker. @returns {Offered} */
  definitions() {
    const kinds = /** @type {OfferKind[]} */ (Object.keys(this.#items));
    const filled = kinds.filter((kind) => this.#items[kind].size);
    const all = (/** @type {OfferKind} */ kind) =>
      [...this.#items[kind]].map(([key, item]) => this.#define(kind, key, item));
    return Object.fromEntries(filled.map((kind) => [kind, all(kind)]));
  }

  /**
   * Run the handler of a call. Returns its MCP result, or the JSON text of it.
   * @param {CallMessage} message
   * @param {CallContext} context
   * @returns {string | object | Promise<string | object>}
   */
  run(message, context) {
    if (message.kind !== "tools") return this.#run(message, context);
    return this.#runTool(message.name, ("request" in message ? message.request.params : message).arguments, context);
  }

  /**
   * @param {Exclude<CallMessage, { kind: "tools" }>} message
   * @param {CallContext} context
   * @returns {Promise<object>}
   */
  async #run(message, context) {
    switch (message.kind) {
      case "resources":
      case "templates": {
        /** @type {Resource} */
        const resource = this.#get(message.kind, message.name, () => new ResourceNotFound(message.uri));
        const value = await resource.read(message.uri, { ...context, variables: message.arguments });
        return isInputRequired(value) ? /** @type {object} */ (value) : toContents(value, message.uri, resource.mimeType);
      }
      case "prompts": {
        /** @type {Prompt} */
        const prompt = this.#get("prompts", message.name, () => withdrawn("prompt", message.name));
        checkArguments(prompt, message.arguments);
        const value = await prompt.get(message.arguments, context);
        return isInputRequired(value) ? /** @type {object} */ (value) : toMessages(value, prompt.description);
      }
      case "completion": {
        /** @type {Resource | Prompt} */
        const item = this.#get(message.of, message.name, () => withdrawn(message.of, message.name));
        const completer = Object.hasOwn(item.complete ?? {}, message.argument) ? item.complete?.[message.argument] : [];
        return toCompletion(await complete(completer ?? [], message, context));
      }
    }
  }

  /**
   * Read a resource of this page, for an app that follows it.
   * @param {string} uri
   * @param {CallContext} context
   */
  async read(uri, context) {
    return /** @type {Promise<{ contents: any[] }>} */ (this.#run(/** @type {any} */ ({ kind: "resources", name: uri, uri, arguments: {} }), context));
  }

  /**
   * @param {string} name
   * @param {unknown} args
   * @param {CallContext} context
   */
  #runTool(name, args, context) {
    /** @type {OfferedTool} */
    const tool = this.#get("tools", name, () => new Error(`This tab does not offer "${name}" any more.`));
    const schema = tool.inputSchema ?? {};
    const given = tool.omitsNull ? withoutNulls(args, tool.omitsNull) : args;
    const faults = certainlyValid(schema, given) ? [] : check(schema, given);
    if (faults.length) throw new InvalidArguments(`Invalid arguments for tool "${name}":\n${faults.join("\n")}`);
    const value = tool.execute(given, context);
    return isPending(value) ? awaitToolResult(tool, value) : toToolResult(tool, value);
  }

  /**
   * @template {Item} T
   * @param {OfferKind} kind
   * @param {string} key
   * @param {T} item
   */
  #add(kind, key, item) {
    // The definition is made first: if that throws, the item must not be stored.
    const definition = this.#define(kind, key, item);
    this.#items[kind].set(key, item);
    this.#since.set(`${kind} ${key}`, definition.since_ms);
    return { kind, key, offer: /** @type {Offered} */ ({ [kind]: [definition] }) };
  }

  /**
   * @param {OfferKind} kind
   * @param {string} key
   * @param {Item} item
   */
  #define(kind, key, item) {
    const since_ms = this.#since.get(`${kind} ${key}`) ?? Date.now();
    return { ...DEFINE[kind](item), since_ms };
  }

  /**
   * @param {OfferKind} kind
   * @param {string} key
   * @param {() => Error} problem
   */
  #get(kind, key, problem) {
    const found = this.#items[kind].get(key);
    if (!found) throw problem();
    return found;
  }
}

/** The definition of an item, for the worker. @type {Record<OfferKind, (item: any) => any>} */
const DEFINE = {
  tools: (/** @type {ToolDefinition} */ tool) => {
    const { name, title, description, inputSchema, outputSchema, annotations, icons, task } = tool;
    const execution = task && { taskSupport: task };
    const schema = objectSchema(outputSchema);
    const _meta = toolMeta(tool);
    return jsonCopy({ name, title, description: description ?? "", inputSchema, outputSchema: schema, annotations, icons, execution, _meta });
  },
  resources: ({ uri, ...rest }) => jsonCopy({ uri, ...defineResource(uri, rest) }),
  templates: ({ uri, ...rest }) => jsonCopy({ uriTemplate: uri, ...defineResource(uri, rest) }),
  prompts: (/** @type {PromptDefinition} */ { name, title, description, arguments: args, icons, _meta }) =>
    jsonCopy({ name, title, description, arguments: args, icons, _meta }),
};

/**
 * @param {string} uri
 * @param {Omit<Resource, "uri">} resource
 */
function defineResource(uri, { name, title, description, mimeType, size, annotations, icons, _meta }) {
  return { name: name ?? uri, title, description, mimeType, size, annotations, icons, _meta };
}

/**
 * The arguments without those that are null and may be left out.
 * @param {unknown} args
 * @param {string[]} names
 */
function withoutNulls(args, names) {
  if (typeof args !== "object" || args === null) return args;
  return Object.fromEntries(Object.entries(args).filter(([name, value]) => value !== null || !names.includes(name)));
}

/**
 * The MCP result for a tool's return value, or its JSON text.
 * @param {Tool} tool
 * @param {unknown} value
 * @returns {string | object | Promise<object>}
 */
function toToolResult(tool, value) {
  if (isInputRequired(value)) return /** @type {object} */ (value);
  const owner = `Tool "${tool.name}"`;
  if (tool.outputSchema === undefined) return resultText(value, owner) ?? resultOf(value, false, owner);
  const result = resultOf(value, true, owner);
  return isPending(result) ? result.then((later) => checkOutput(tool, later)) : checkOutput(tool, result);
}

/**
 * @param {Tool} tool
 * @param {unknown} value
 */
async function awaitToolResult(tool, value) {
  return toToolResult(tool, await value);
}

/**
 * @param {Tool} tool
 * @param {Record<string, any>} result
 */
function checkOutput({ name, outputSchema }, result) {
  if (!outputSchema || result.isError) return result;
  const value = jsonCopy(result.structuredContent);
  const faults = check(outputSchema, value, "result", "property");
  if (!faults.length) return hasObjects(outputSchema) ? result : { ...result, structuredContent: { result: value } };
  throw new InvalidResult(`Tool "${name}" returned what its output schema does not allow:\n${faults.join("\n")}`);
}

/**
 * Does the schema promise an object? Most clients accept nothing else as structured content.
 * @param {Record<string, any>} schema
 */
function hasObjects(schema) {
  return schema.type === "object";
}

/**
 * The schema as clients get it: a value that is not an object is the member `result` of one. `$defs` stay at the root, where
 * references find them.
 * @param {Record<string, any> | undefined} schema
 */
function objectSchema(schema) {
  if (!schema || hasObjects(schema)) return schema;
  const { $defs, $schema, ...inner } = schema;
  return { type: "object", properties: { result: inner }, required: ["result"], $defs, $schema };
}

/**
 * @param {Completer} completer
 * @param {{ typed: string, arguments: Record<string, string> }} message
 * @param {CallContext} context
 */
async function complete(completer, { typed, arguments: args }, context) {
  if (typeof completer === "function") return (await completer(typed, args, context)) ?? [];
  return completer.filter((value) => value.toLowerCase().startsWith(typed.toLowerCase()));
}

/**
 * @param {Prompt} prompt
 * @param {Record<string, string>} given
 */
function checkArguments(prompt, given) {
  const known = prompt.arguments ?? [];
  const faults = [
    ...Object.keys(given)
      .filter((name) => !known.some((argument) => argument.name === name))
      .map((name) => `arguments.${name}: unknown argument`),
    ...known
      .filter(({ name, required }) => required && !Object.hasOwn(given, name))
      .map(({ name }) => `arguments.${name}: missing, expected string`),
  ];
  if (faults.length) throw new InvalidParams(`Invalid arguments for prompt "${prompt.name}":\n${faults.join("\n")}`);
}

/**
 * @param {string} noun
 * @param {string} name
 */
function withdrawn(noun, name) {
  return invalidParams(`This tab does not offer the ${noun} "${name}" any more.`);
}

/**
 * @param {Record<string, any>} item
 * @param {string} label
 */
function checkCaps(item, label) {
  for (const [key, max] of /** @type {[string, number][]} */ ([["title", MAX_TITLE], ["description", MAX_DESCRIPTION]])) {
    const text = item[key];
    if (typeof text !== "string") continue;
    if (text.length > max) throw new RefusedOffer(`${label}: its ${key} has ${text.length} characters; at most ${max} are passed on`);
    if (CONTROL_CHARACTERS.test(text)) throw new RefusedOffer(`${label}: its ${key} has control or direction characters, which are never passed on`);
  }
  for (const key of ["inputSchema", "outputSchema"]) {
    if (isDeeper(item[key], MAX_DEPTH)) throw new RefusedOffer(`${label}: its ${key} nests deeper than ${MAX_DEPTH} levels`);
  }
}

/**
 * @param {unknown} value
 * @param {number} levels
 * @returns {boolean}
 */
function isDeeper(value, levels) {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
}

/**
 * @param {Record<string, any>} item
 * @param {string} member
 * @param {string} label
 */
function requireFunction(item, member, label) {
  if (typeof item[member] === "function") return;
  const similar = nearest(member, Object.keys(item).filter((name) => typeof item[name] === "function"));
  const meant = similar === undefined ? "" : `, but one that is called \`${similar}\``;
  throw new RefusedOffer(`${label} has no function \`${member}\`${meant}`);
}
