/**
 * Requests of a running call to its MCP client: elicitation, sampling and roots.
 *
 * It turns method calls of a handler into MCP requests, and checks the client's answers before it returns them as values. It
 * sends nothing: `ask` does.
 *
 * @import { AskOptions, CallContext, Elicited, Message, Root, Sampled, SampleOptions } from "../client.js"
 */

import { jsonCopy, toMessage } from "./results.js";
import { check } from "../schema/validate.js";

const MAX_TOKENS = 1024;
const ACTIONS = ["accept", "decline", "cancel"];

/**
 * @typedef {Record<string, unknown>} Answer
 * @typedef {(method: string, params: object, key: string | undefined) => Promise<Answer>} Ask
 */

/** Returned by a handler that does not wait for answers: it is called again, with them. */
export class InputRequired {
  /**
   * @param {Record<string, { method: string, params: object }>} requests
   * @param {unknown} [state]
   */
  constructor(requests, state = null) {
    this.requests = requests;
    this.state = state;
  }
}

/**
 * Also in its wire form, which Python in the page returns.
 * @param {any} value
 */
export function isInputRequired(value) {
  return value instanceof InputRequired || value?.resultType === "input_required";
}

/** @param {any} value */
export function toInputRequired(value) {
  const { requests, state } = value instanceof InputRequired
    ? value
    : { requests: value.inputRequests ?? {}, state: value.requestState };
  return jsonCopy({ requests, state: state ?? null });
}

/**
 * @param {Ask} ask
 * @returns {Pick<CallContext, "elicit" | "elicitUrl" | "sample" | "roots">}
 */
export function clientRequests(ask) {
  return {
    /**
     * @param {string} message
     * @param {object} schema
     * @param {AskOptions} [options]
     */
    async elicit(message, schema, { key } = {}) {
      const answer = readAction(await ask("elicitation/create", { message, requestedSchema: schema }, key));
      if (answer.action !== "accept") return /** @type {any} */ (answer);
      const faults = check(schema, answer.content, "content", "property");
      if (faults.length) throw invalidAnswer(faults.join("\n"));
      return /** @type {any} */ (answer);
    },

    async elicitUrl(message, url, { key } = {}) {
      return /** @type {any} */ (readAction(await ask("elicitation/create", { mode: "url", message, url }, key)));
    },

    /**
     * @param {string | Message[]} messages
     * @param {SampleOptions} [options]
     */
    async sample(messages, { key, maxTokens = MAX_TOKENS, ...options } = {}) {
      const converted = (typeof messages === "string" ? [messages] : messages).map(toMessage);
      return readSampled(await ask("sampling/createMessage", { messages: converted, maxTokens, ...options }, key));
    },

    async roots({ key } = {}) {
      const { roots } = await ask("roots/list", {}, key);
      if (!Array.isArray(roots)) throw invalidAnswer("roots: expected an array");
      return /** @type {Root[]} */ (roots);
    },
  };
}

/**
 * @param {Answer} answer
 * @returns {Elicited}
 */
function readAction({ action, content }) {
  if (typeof action !== "string" || !ACTIONS.includes(action)) {
    throw invalidAnswer(`action: expected one of ${ACTIONS.join(", ")}, got ${JSON.stringify(action)}`);
  }
  const known = /** @type {Elicited["action"]} */ (action);
  return known === "accept" ? { action: known, content: /** @type {Answer} */ (content ?? {}) } : { action: known };
}

/**
 * @param {Answer} answer
 * @returns {Sampled}
 */
function readSampled(answer) {
  const blocks = /** @type {any[]} */ ([answer.content].flat());
  if (!["user", "assistant"].includes(String(answer.role)) || !blocks.every((block) => typeof block === "object" && block)) {
    throw invalidAnswer("the client's model gave no message: role and content expected");
  }
  const text = blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
  return /** @type {Sampled} */ ({ ...answer, text });
}

/** @param {string} faults */
function invalidAnswer(faults) {
  const error = new Error(`The client's answer is not what was asked for: ${faults}`);
  error.name = "InvalidAnswer";
  return error;
}
