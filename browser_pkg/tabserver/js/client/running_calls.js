/**
 * Running calls of this tab: their context, their requests to the client, and exactly one end for each.
 *
 * A call ends with a result, an error or a cancellation; later messages of it are dropped. It posts through a function that it
 * gets with each call, and does not know the port.
 *
 * @import { CallContext } from "../client.js"
 * @import { AnswerMessage, CallMessage, FromPage } from "../ports.js"
 */

import { describe, McpError } from "./errors.js";
import { isInputRequired, clientRequests, toInputRequired } from "./client_requests.js";
import { isPending, jsonCopy } from "./results.js";

/**
 * Runs the handler of a call and returns its MCP result.
 * @typedef {(message: CallMessage, context: CallContext) => object | Promise<object>} RunHandler
 * @typedef {(reply: FromPage) => void} Post
 */

export class RunningCalls {
  /** @type {Map<string, RunningCall>} */
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
    const running = new RunningCall(message, post);
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
   * @param {RunningCall} running
   * @param {PromiseLike<object>} result
   */
  async #wait(running, result) {
    try {
      running.finish(await result);
    } catch (error) {
      running.fail(error);
    }
    this.#end(running);
  }

  /** @param {RunningCall} running */
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
class RunningCall {
  /** Made when the tool reads `signal`: most tools never do. @type {AbortController | undefined} */
  #abort;
  /** @type {DOMException | undefined} */
  #reason;
  #message;
  #post;
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
    const { call, caller, trace = null, responses = {}, state = null } = this.#message;
    return {
      call,
      caller,
      trace,
      get signal() {
        return running.signal;
      },
      inputResponses: responses,
      requestState: state,
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

  /** @param {object} result */
  finish(result) {
    if (this.isAborted) return;
    const { call } = this.#message;
    if (isInputRequired(result)) this.#post({ t: "required", call, ...toInputRequired(result) });
    else this.#post({ t: "result", call, json: JSON.stringify(result) });
  }

  /** @param {unknown} error */
  fail(error) {
    if (!this.isAborted) this.#post({ t: "error", call: this.#message.call, ...toError(error) });
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

/** @param {any} error */
function toError(error) {
  const message = describe(error);
  if (!error?.isProtocolError || !Number.isInteger(error.code)) return { message };
  const { name, code, data } = error;
  return { message, name, code, ...(data === undefined ? {} : { data: jsonCopy(data) }) };
}
