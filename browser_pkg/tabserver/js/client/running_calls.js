/**
 * Running calls of this tab: their context, their requests to the client, and exactly one end for each.
 *
 * A call ends with a result, an error or a cancellation; later messages of it are dropped. It posts through a function that it
 * gets with each call, and does not know the port. Requests to the MCP client (elicitation, sampling, roots) are messages to the
 * worker; the client's answers are checked before a handler gets them.
 *
 * @import { AskOptions, CallContext, Elicited, Message, Root, Sampled, SampleOptions } from "../client.js"
 * @import { AnswerMessage, CallMessage, FromPage } from "../ports.js"
 */

import { describe, InvalidArguments, InvalidResult, isOfCaller, McpError } from "./errors.js";
import { UnwritableValue, writeJson } from "./json_values.js";
import { isPending, jsonCopy, toMessage } from "./results.js";
import { check } from "../schema/validate.js";

const ELICITATION_CREATE = "elicitation/create";
const MAX_TOKENS = 1024;
/** Characters of a task's state, as JSON: the limit of mcp/task_call.py. */
const MAX_STATE = 64 * 1024;
const ACTIONS = ["accept", "decline", "cancel"];

/**
 * @typedef {Record<string, unknown>} Answer
 * @typedef {(method: string, params: object, key: string | undefined) => Promise<Answer>} Ask
 */

/**
 * Runs the handler of a call and returns its MCP result, or the JSON text of it.
 * @typedef {(message: CallMessage, context: CallContext) => string | object | Promise<string | object>} RunHandler
 * @typedef {(reply: FromPage) => void} Post
 */

export class RunningCalls {
  /** @type {Map<string, Call>} */
  #running = new Map();
  #handler;

  /** @param {RunHandler} handler */
  constructor(handler) {
    this.#handler = handler;
  }

  /**
   * Run a call, and post its messages and its result. A synchronous handler's result is posted before `run` returns.
   * @param {CallMessage} message
   * @param {Post} post
   */
  run(message, post) {
    const running = new Call(message, post);
    this.#running.set(message.call, running);
    try {
      const result = this.#handler(message, running.context());
      if (isPending(result)) return void this.#wait(running, result);
      running.finish(result);
    } catch (error) {
      running.fail(error);
    }
    this.#end(running);
  }

  /**
   * @param {Call} running
   * @param {PromiseLike<string | object>} result
   */
  async #wait(running, result) {
    try {
      running.finish(await result);
    } catch (error) {
      running.fail(error);
    }
    this.#end(running);
  }

  /** @param {Call} running */
  #end(running) {
    running.end();
    if (this.#running.get(running.call) === running) this.#running.delete(running.call);
  }

  /** @param {AnswerMessage} message */
  answer(message) {
    this.#running.get(message.call)?.answer(message);
  }

  /**
   * @param {string} call
   * @param {string} reason
   */
  cancel(call, reason) {
    this.#running.get(call)?.abort(reason);
  }

  /** @param {string} reason */
  cancelAll(reason) {
    for (const running of this.#running.values()) running.abort(reason);
    this.#running.clear();
  }
}

/** One call, and its unanswered requests to the client. */
class Call {
  /** Made when the tool reads `signal`: most tools never do. @type {AbortController | undefined} */
  #abort;
  /** @type {DOMException | undefined} */
  #reason;
  #message;
  #post;
  #began_ms;
  #hasEnded = false;
  /** Made with the first request. @type {Map<number, PromiseWithResolvers<Record<string, unknown>>> | undefined} */
  #pending;
  #lastAsk = 0;

  /**
   * @param {CallMessage} message
   * @param {Post} post
   */
  constructor(message, post) {
    this.#message = message;
    this.#post = post;
    this.#began_ms = message.timed ? now_ms() : 0;
  }

  get call() {
    return this.#message.call;
  }

  get isAborted() {
    return this.#reason !== undefined;
  }

  get signal() {
    this.#abort ??= new AbortController();
    if (this.#reason) this.#abort.abort(this.#reason);
    return this.#abort.signal;
  }

  /** @returns {CallContext} */
  context() {
    const running = this;
    const { call, caller, trace = null, responses = {}, state = null, task = null } = this.#message;
    return {
      call,
      caller,
      trace,
      get signal() {
        return running.signal;
      },
      inputResponses: responses,
      requestState: state,
      taskId: task?.id ?? null,
      saved: task?.saved ?? null,
      save: (kept) => {
        const text = JSON.stringify(kept ?? null);
        if (text.length > MAX_STATE) throw new RangeError(`The state of a task has at most ${MAX_STATE} characters of JSON`);
        if (task) this.#notify({ t: "save", call, state: JSON.parse(text) });
      },
      progress: (progress, total, message) => {
        const more = { ...(total == null ? {} : { total }), ...(message ? { message } : {}) };
        this.#notify({ t: "progress", call, progress, ...more });
      },
      log: (level, data, logger) => {
        this.#notify({ t: "log", call, level, data: jsonCopy(data), ...(logger ? { logger } : {}) });
      },
      can: (capability) => typeof caller.capabilities?.[capability] === "object",
      ask: (method, params, { key } = {}) => this.#ask(method, params, key),
      ...clientRequests((method, params, key) => this.#ask(method, params, key)),
    };
  }

  /** @param {string | object} result an MCP result, or the JSON text of it */
  finish(result) {
    if (this.isAborted) return;
    const { call } = this.#message;
    this.#reportTimes();
    if (typeof result === "string") return this.#post({ t: "result", call, json: result });
    if (isInputRequired(result)) this.#post({ t: "required", call, ...toInputRequired(result) });
    else this.#post({ t: "result", call, json: writeJson(result, this.#owner) });
  }

  /** @param {unknown} error */
  fail(error) {
    if (this.isAborted) return;
    this.#reportTimes();
    this.#post({ t: "error", call: this.#message.call, ...toError(error) });
    if (error instanceof UnwritableValue) console.error(`tabrelay: ${error.message} [TR132]`);
    else if (!isOfCaller(error)) console.error(`tabrelay: ${this.#owner} failed. [TR474]`, error);
  }

  /** F6: the relay asks when calls began and ended, while a console captures them. The result itself follows at once. */
  #reportTimes() {
    const { call, timed } = this.#message;
    if (timed) this.#post({ t: "times", call, began: this.#began_ms, ended: now_ms() });
  }

  /** What runs, for messages. */
  get #owner() {
    const { kind, name } = this.#message;
    if (kind === "tools") return `Tool "${name}"`;
    if (kind === "prompts") return `Prompt "${name}"`;
    return kind === "completion" ? `Completion for "${name}"` : `Resource ${this.#message.uri}`;
  }

  /** @param {AnswerMessage} message */
  answer(message) {
    const waiting = this.#pending?.get(message.ask);
    this.#pending?.delete(message.ask);
    if (!waiting) return;
    if ("answer" in message) return waiting.resolve(message.answer);
    const { name, message: text, code = 0, data } = message.error;
    // If the tool does not catch it, only MissingCapability is a protocol error of the call; the others are tool errors.
    const error = name === "MissingCapability" ? new McpError(code, text, data) : new Error(text);
    waiting.reject(Object.assign(error, { name, code, data }));
  }

  /** @param {string} reason */
  abort(reason) {
    this.#reason ??= new DOMException(reason, "AbortError");
    this.#abort?.abort(this.#reason);
    this.#rejectAll(this.#reason);
  }

  end() {
    this.#hasEnded = true;
    if (this.#pending) this.#rejectAll(new DOMException("The call is over.", "AbortError"));
  }

  /**
   * @param {string} method
   * @param {object} params
   * @param {string | undefined} key
   */
  async #ask(method, params, key) {
    this.signal.throwIfAborted();
    if (this.#hasEnded) throw new DOMException("The call is over: its client can't be asked any more.", "InvalidStateError");
    const ask = ++this.#lastAsk;
    const waiting = /** @type {PromiseWithResolvers<Record<string, unknown>>} */ (Promise.withResolvers());
    this.#pending ??= new Map();
    this.#pending.set(ask, waiting);
    const { call } = this.#message;
    this.#post({ t: "ask", call, ask, method, params: jsonCopy(params), ...(key ? { key } : {}) });
    return waiting.promise;
  }

  /** @param {FromPage} message */
  #notify(message) {
    if (!this.#hasEnded && !this.isAborted) this.#post(message);
  }

  /** @param {unknown} reason */
  #rejectAll(reason) {
    for (const waiting of this.#pending?.values() ?? []) {
      waiting.promise.catch(() => {}); // a request that its handler no longer awaits must not be an unhandled rejection
      waiting.reject(reason);
    }
    this.#pending?.clear();
  }
}

/** Milliseconds since 1970, by a clock that the time of day does not change. */
function now_ms() {
  return performance.timeOrigin + performance.now();
}

/** @param {any} error */
function toError(error) {
  const message = describe(error);
  if (error instanceof InvalidArguments) return { message, name: "InvalidArguments" };
  if (error instanceof InvalidResult) return { message, name: "InvalidResult" };
  if (!error?.isProtocolError || !Number.isInteger(error.code)) return { message };
  const { name, code, data } = error;
  return { message, name, code, ...(data === undefined ? {} : { data: jsonCopy(data) }) };
}

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
function toInputRequired(value) {
  const { requests, state } = value instanceof InputRequired
    ? value
    : { requests: value.inputRequests ?? {}, state: value.requestState };
  return jsonCopy({ requests, state: state ?? null });
}

/**
 * @param {Ask} ask
 * @returns {Pick<CallContext, "elicit" | "elicitUrl" | "sample" | "roots">}
 */
function clientRequests(ask) {
  return {
    /**
     * @param {string} message
     * @param {object} schema
     * @param {AskOptions} [options]
     */
    async elicit(message, schema, { key } = {}) {
      const answer = readAction(await ask(ELICITATION_CREATE, { message, requestedSchema: schema }, key));
      if (answer.action !== "accept") return /** @type {any} */ (answer);
      const faults = check(schema, answer.content, "content", "property");
      if (faults.length) throw invalidAnswer(faults.join("\n"));
      return /** @type {any} */ (answer);
    },

    async elicitUrl(message, url, { key } = {}) {
      return /** @type {any} */ (readAction(await ask(ELICITATION_CREATE, { mode: "url", message, url }, key)));
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
