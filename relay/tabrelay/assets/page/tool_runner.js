/**
 * Calls of tools through the relay, made by a page of the relay as an MCP client of protocol version 2026-07-28.
 *
 * A call takes the way of every client's call: HTTP to the relay, then the worker, then the tab. It shows the relay a proof of
 * the page's call key, which is accepted only for servers that pages of this origin offer at the moment. It knows no session, no
 * older protocol version and no other relay.
 */

import { findKeys } from "/-/client/key_store.js";
import { TOKEN_KEY } from "/-/client/redeem_code.js";
import { callKey, prove } from "/-/proof.js";
import { PROGRESS, TOOLS_CALL, TOOLS_LIST } from "./mcp_methods.js";
import { eventMessages } from "./event_stream.js";

/**
 * @typedef {{ progress: number, total?: number, message?: string }} Progress
 * @typedef {{ method: string, params?: Record<string, any> }} Question a request of the tool to the user, such as `elicitation/create`
 * @typedef {{ name: string, title?: string, description?: string, inputSchema?: Record<string, any>, annotations?: Record<string, any> }} ToolDefinition
 * @typedef {{ type: string, text?: string, data?: string, mimeType?: string } & Record<string, unknown>} ContentBlock
 * @typedef {{ content?: ContentBlock[], structuredContent?: unknown, isError?: boolean } & Record<string, any>} ToolResult
 *
 * @typedef {object} ToolCall
 * @property {string} server
 * @property {string} tool
 * @property {Record<string, unknown>} [args]
 * @property {Record<string, any>} [schema] the tool's input schema, if it repeats arguments in headers
 * @property {string} [client] the name that the call shows in lists of calls
 * @property {AbortSignal} [signal] cancels the call
 * @property {(progress: Progress) => void} [onProgress]
 * @property {(question: Question) => Promise<Record<string, unknown>>} [onQuestion] answers a question of the tool, such as
 *   `{ action: "accept", content: { … } }`; without it, tools get the capabilities of a client that answers none
 */

const VERSION = "2026-07-28";
const CLIENT = "tabrelay page";
const META = "io.modelcontextprotocol";
/** A little less than the relay accepts a proof. */
const PROOF_LIFETIME_MS = 30_000;
const PROOF_TIMEOUT_MS = 10_000;
/** As many times may a tool ask before it answers. */
const MAX_ROUNDS = 16;
/** What a header can carry unchanged. */
const PLAIN = /^[\x20-\x7e]*$/;

let lastId = 0;
/** @type {{ bearer: string, made_ms: number } | undefined} */
let lastProof;

/** An error in place of a result: of the relay, the worker or the protocol. A tool that fails has a result with `isError`. */
class ToolCallError extends Error {
  /**
   * @param {string} message
   * @param {number} [code] of JSON-RPC
   * @param {number} [status] of HTTP
   */
  constructor(message, code, status) {
    super(message);
    this.name = "ToolCallError";
    this.code = code;
    this.status = status;
  }
}

/**
 * Call a tool and return its result. Throws a ToolCallError, an Unproven of `proof.js`, or the reason of `signal`.
 *
 * @param {ToolCall} call
 * @returns {Promise<ToolResult>}
 */
export async function runTool(call) {
  const { tool, args = {}, onQuestion } = call;
  /** @type {Record<string, unknown>} */
  let params = { name: tool, arguments: args };
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const result = await request(TOOLS_CALL, params, { ...call, headers: { "Mcp-Name": encoded(tool), ...paramHeaders(call) } });
    if (result.resultType !== "input_required") return result;
    params = { name: tool, arguments: args, inputResponses: await answers(result.inputRequests ?? {}, onQuestion) };
    if ("requestState" in result) params.requestState = result.requestState;
  }
  throw new ToolCallError(`"${tool}" asked for more input ${MAX_ROUNDS} times.`);
}

/**
 * The tools of a server, as its clients get them.
 *
 * @param {string} server
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {Promise<ToolDefinition[]>}
 */
export async function listTools(server, { signal } = {}) {
  const { tools = [] } = await request(TOOLS_LIST, {}, { server, signal });
  return tools;
}

/**
 * The texts of a result, or its structured value, for people: `5`, or several lines.
 *
 * @param {ToolResult} result
 * @returns {string}
 */
export function resultText({ content = [], structuredContent }) {
  const texts = content.map((block) => (block.type === "text" ? String(block.text) : `[${block.type} ${block.mimeType ?? ""}]`.replace(" ]", "]")));
  if (texts.length || structuredContent === undefined) return texts.join("\n");
  return JSON.stringify(structuredContent);
}

/**
 * @param {Record<string, Question>} asked
 * @param {ToolCall["onQuestion"]} onQuestion
 */
async function answers(asked, onQuestion) {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [key, question] of Object.entries(asked)) {
    if (!onQuestion) throw new ToolCallError(`The tool asks for ${question.method}, which this page does not answer.`);
    found[key] = await onQuestion(question);
  }
  return found;
}

/**
 * @param {string} method
 * @param {Record<string, unknown>} params
 * @param {Omit<ToolCall, "tool"> & { headers?: Record<string, string> }} options
 * @returns {Promise<Record<string, any>>} the result
 */
async function request(method, params, { server, client = CLIENT, signal, onProgress, onQuestion, headers }) {
  const id = ++lastId;
  const meta = {
    [`${META}/protocolVersion`]: VERSION,
    [`${META}/clientInfo`]: { name: client, version: VERSION },
    [`${META}/clientCapabilities`]: onQuestion ? { elicitation: { form: {} } } : {},
    ...(onProgress ? { progressToken: id } : {}),
  };
  const init = {
    method: "POST",
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } }),
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": VERSION,
      "Mcp-Method": method,
      ...headers,
    },
    signal,
  };
  const response = await send(`/${encodeURIComponent(server)}`, init).catch(inWords("The relay can't be reached. Is it running?"));
  for await (const message of messagesOf(response)) {
    if (message.method === PROGRESS && message.params?.progressToken === id) onProgress?.(message.params);
    if (message.id !== id && !message.error) continue;
    if (message.error) throw new ToolCallError(String(message.error.message), message.error.code, response.status);
    return message.result ?? {};
  }
  throw new ToolCallError(`The relay answered ${response.status} without a result.`, undefined, response.status);
}

/**
 * Send a request with a proof of the call key. A proof that the relay does not accept (it was restarted) is made once more.
 *
 * @param {string} path
 * @param {RequestInit & { headers: Record<string, string>, signal: AbortSignal | undefined }} init
 */
async function send(path, init) {
  for (let attempt = 1; ; attempt++) {
    const bearer = await proofOfCallKey(attempt > 1, init.signal);
    const headers = bearer ? { ...init.headers, Authorization: `Bearer ${bearer}` } : init.headers;
    const response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit", redirect: "error" });
    if (response.status !== 401 || attempt > 1) return response;
    await response.body?.cancel();
  }
}

/**
 * Empty if this page is not paired; the relay then refuses, unless it needs no token.
 *
 * @param {boolean} isStale
 * @param {AbortSignal | undefined} signal
 */
async function proofOfCallKey(isStale, signal) {
  if (lastProof && !isStale && performance.now() - lastProof.made_ms < PROOF_LIFETIME_MS) return lastProof.bearer;
  const keys = await findKeys(TOKEN_KEY);
  if (!keys) return "";
  const limit = AbortSignal.timeout(PROOF_TIMEOUT_MS);
  const { bearer } = await prove(location.origin, await callKey(keys.page), signal ? AbortSignal.any([limit, signal]) : limit);
  lastProof = { bearer, made_ms: performance.now() };
  return bearer;
}

/**
 * The JSON-RPC messages of a response: one, or an event stream of them.
 *
 * @param {Response} response
 * @returns {AsyncGenerator<Record<string, any>>}
 */
async function* messagesOf(response) {
  const type = response.headers.get("Content-Type") ?? "";
  const isLost = inWords("The connection to the relay was lost before the result came.");
  if (type.startsWith("text/event-stream") && response.body) {
    try {
      yield* eventMessages(response.body);
    } catch (error) {
      isLost(error);
    }
    return;
  }
  const text = await response.text().catch(isLost);
  /** @type {Record<string, any>} */
  let message;
  try {
    message = JSON.parse(text);
  } catch {
    throw new ToolCallError(`The relay answered ${response.status}.`, undefined, response.status);
  }
  // The gate's refusals are no JSON-RPC: {"error": "forbidden", "message": "…"}.
  if (typeof message.error === "string") throw new ToolCallError(String(message.message ?? message.error), undefined, response.status);
  yield message;
}

/**
 * Browsers report a lost connection as a TypeError with words of their own.
 *
 * @param {string} words
 * @returns {(error: unknown) => never}
 */
function inWords(words) {
  return (error) => {
    throw error instanceof TypeError ? new ToolCallError(words) : error;
  };
}

/**
 * Arguments that the schema repeats in headers (`x-mcp-header`).
 *
 * @param {ToolCall} call
 * @returns {Record<string, string>}
 */
function paramHeaders({ schema, args = {} }) {
  /** @type {Record<string, string>} */
  const found = {};
  /** @param {Record<string, any> | undefined} node @param {any} value */
  const visit = (node, value) => {
    for (const [name, inner] of Object.entries(node?.properties ?? {})) {
      const argument = value?.[name];
      if (argument === undefined || argument === null) continue;
      if (inner?.["x-mcp-header"] && typeof argument !== "object") found[`Mcp-Param-${inner["x-mcp-header"]}`] = encoded(String(argument));
      if (typeof argument === "object") visit(inner, argument);
    }
  };
  visit(schema, args);
  return found;
}

/** A header's value: in base64 if a header can't carry the text unchanged. @param {string} text */
function encoded(text) {
  if (PLAIN.test(text) && text === text.trim() && !/^=\?base64\?.*\?=$/.test(text)) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(String.fromCharCode(...bytes))}?=`;
}
