/**
 * Conversion of handlers' return values to MCP results: tools, resources, prompts and completions.
 *
 * A value that already has the form of a result is passed on unchanged. Output schemas are checked in `offers.js`, not here.
 */

import { writeJson } from "./json_values.js";

/** MCP: the most values in one completion result. */
const MAX_COMPLETIONS = 100;

/** The required members of each kind of content block. @type {Record<string, string[]>} */
const BLOCKS = {
  text: ["text"],
  image: ["data", "mimeType"],
  audio: ["data", "mimeType"],
  resource: ["resource"],
  resource_link: ["uri", "name"],
};

/**
 * A complete result (with a `content` array of blocks) is returned unchanged, and so are the blocks of an array of content blocks. A string
 * becomes text, a Blob an image, audio or resource, and any other value JSON text; an object is also the structured content. With
 * an output schema every such value is structured content.
 * @param {unknown} value
 * @param {boolean} [hasOutputSchema] the tool has an output schema
 * @returns {Promise<object>}
 */
export async function toResult(value, hasOutputSchema) {
  return resultOf(value, hasOutputSchema);
}

/**
 * The result of nearly all tools as JSON text: of text, of other JSON values, and of none. Undefined: it needs more, see `resultOf`.
 * A value is written once, not first as text for the model and again as structured content.
 * @param {unknown} value
 * @param {string} owner `Tool "add"`
 * @returns {string | undefined}
 */
export function resultText(value, owner) {
  if (typeof value === "string") return `{"content":[{"type":"text","text":${JSON.stringify(value)}}]}`;
  if (value === undefined) return '{"content":[]}';
  if (isRecord(value)) {
    if (Array.isArray(value) ? value.some(isContent) : Array.isArray(value.content) || value instanceof Blob) return undefined;
  }
  const json = writeJson(value, owner);
  const shown = JSON.stringify(json);
  return `{"content":[{"type":"text","text":${shown}}]${json.startsWith("{") ? `,"structuredContent":${json}` : ""}}`;
}

/**
 * The same as `toResult`, synchronously unless there are blobs to read.
 * @param {unknown} value
 * @param {boolean} [hasOutputSchema]
 * @param {string} [owner]
 * @returns {object | Promise<object>}
 */
export function resultOf(value, hasOutputSchema = false, owner = "The tool") {
  if (typeof value === "string" && !hasOutputSchema) return { content: [text(value)] };
  if (value === undefined) return { content: [] };
  if (isRecord(value) && Array.isArray(value.content) && value.content.every(isBlock)) return value;
  if (value instanceof Blob) return toBlocks([value], owner);
  if (Array.isArray(value) && value.some(isContent)) return toBlocks(value, owner);
  const json = writeJson(value, owner);
  const content = [text(typeof value === "string" ? value : json)];
  // Decided by the JSON text, not by the value: a Date, for example, is an object whose JSON is a string.
  return hasOutputSchema || json.startsWith("{") ? { content, structuredContent: value } : { content };
}

/** A block of content, also of a kind that is not known here. Other lists called `content` are data of the app. @param {unknown} value */
function isBlock(value) {
  return isRecord(value) && typeof value.type === "string" && (BLOCKS[value.type] ?? []).every((member) => member in value);
}

/** @param {unknown} value */
function isContent(value) {
  if (value instanceof Blob) return true;
  if (!isRecord(value)) return false;
  const needed = BLOCKS[String(value.type)];
  return needed !== undefined && needed.every((member) => member in value);
}

/**
 * @param {unknown[]} items
 * @param {string} owner
 */
async function toBlocks(items, owner) {
  return { content: await Promise.all(items.map((item) => toBlock(item, owner))) };
}

/**
 * @param {unknown} item
 * @param {string} owner
 */
async function toBlock(item, owner) {
  if (item instanceof Blob) {
    const data = toBase64(new Uint8Array(await item.arrayBuffer()));
    const mimeType = item.type || "application/octet-stream";
    const kind = mimeType.split("/", 1)[0];
    if (kind === "image" || kind === "audio") return { type: kind, data, mimeType };
    return { type: "resource", resource: { uri: `blob:${crypto.randomUUID()}`, mimeType, blob: data } };
  }
  if (isContent(item)) return item;
  return text(typeof item === "string" ? item : writeJson(item, owner));
}

/**
 * A complete result (with a `contents` array) is returned unchanged; text, bytes or JSON become the contents of the URI.
 * @param {unknown} value
 * @param {string} uri
 * @param {string} [mimeType]
 * @returns {Promise<object>}
 */
export async function toContents(value, uri, mimeType) {
  if (isRecord(value) && Array.isArray(value.contents)) return value;
  if (typeof value === "string") return { contents: [{ uri, mimeType: mimeType ?? "text/plain", text: value }] };
  const bytes = await bytesOf(value);
  if (bytes) {
    const type = mimeType ?? ((value instanceof Blob && value.type) || "application/octet-stream");
    return { contents: [{ uri, mimeType: type, blob: toBase64(bytes) }] };
  }
  return { contents: [{ uri, mimeType: mimeType ?? "application/json", text: writeJson(value, `Resource ${uri}`) }] };
}

/**
 * A complete result (with a `messages` array) is returned unchanged; a string, a content block or a message, or several of
 * these, become messages.
 * @param {unknown} value
 * @param {string} [description]
 * @returns {object}
 */
export function toMessages(value, description) {
  if (isRecord(value) && Array.isArray(value.messages)) return value;
  const messages = (Array.isArray(value) ? value : [value]).map(toMessage);
  return description ? { description, messages } : { messages };
}

/**
 * @param {unknown} item
 * @returns {{ role: unknown, content: unknown }}
 */
export function toMessage(item) {
  if (typeof item === "string") return { role: "user", content: text(item) };
  if (isRecord(item) && (item.role === "user" || item.role === "assistant")) {
    return { role: item.role, content: typeof item.content === "string" ? text(item.content) : item.content };
  }
  if (isRecord(item) && typeof item.type === "string") return { role: "user", content: item };
  throw new TypeError("A prompt returns text, content or messages: { role, content }");
}

/**
 * @param {Iterable<string>} found
 * @returns {object}
 */
export function toCompletion(found) {
  const values = [...found].map(String);
  const hasMore = values.length > MAX_COMPLETIONS;
  return { completion: { values: values.slice(0, MAX_COMPLETIONS), total: values.length, hasMore } };
}

/** @param {string} value */
function text(value) {
  return { type: "text", text: value };
}

/**
 * @param {unknown} value
 * @returns {Promise<Uint8Array | undefined>}
 */
async function bytesOf(value) {
  if (value instanceof Blob) return new Uint8Array(await value.arrayBuffer());
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return undefined;
}

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let binary = "";
  // In parts: engines limit the number of arguments of a call.
  for (let start = 0; start < bytes.length; start += 0x8000) {
    binary += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(binary);
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isRecord(value) {
  return typeof value === "object" && value !== null;
}

/**
 * Is it a promise? Awaiting a value that is not one would cost more than most tools take.
 * @param {any} value
 * @returns {value is PromiseLike<any>}
 */
export function isPending(value) {
  return (typeof value === "object" || typeof value === "function") && typeof value?.then === "function";
}

/**
 * A copy that contains JSON data only: postMessage throws for functions and other values.
 * @template T
 * @param {T} value
 * @returns {T}
 */
export function jsonCopy(value) {
  return JSON.parse(JSON.stringify(value) ?? "null");
}
