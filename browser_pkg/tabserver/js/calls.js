/**
 * The calls that run in this tab: what they say, what they ask, and one end for each. It gets messages and posts messages;
 * where the port leads, and whether there is one, is the connection's business.
 *
 * @import { CallContext } from "./client.js"
 * @import { AnswerMessage, CallMessage, FromPage } from "./ports.js"
 */

import { describe, McpError } from "./errors.js";
import { isInputRequired, questions, toRequired } from "./questions.js";
import { plain } from "./result.js";

/**
 * Runs what a call is for, and gives the result that MCP wants for it.
 * @typedef {(message: CallMessage, context: CallContext) => Promise<object>} Work
 * @typedef {(reply: FromPage) => void} Post
 */

export class Calls {
  /** @type {Map<string, Running>} */
  #running = new Map();

  /**
   * Run a call and post what it says and what comes of it.
   * @param {CallMessage} message
   * @param {Work} work
   * @param {Post} post
   */
  async run(message, work, post) {
    const { call } = message;
    const running = new Running(message, post);
    this.#running.set(call, running);
    try {
      const result = await work(message, running.context());
      if (running.isAborted) return;
      if (isInputRequired(result)) post({ t: "required", call, ...toRequired(result) });
      else post({ t: "result", call, json: JSON.stringify(result) });
    } catch (error) {
      if (!running.isAborted) post({ t: "error", call, ...toError(error) });
    } finally {
      running.end();
      if (this.#running.get(call) === running) this.#running.delete(call);
    }
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

/** One call, and the questions of it that are open. */
class Running {
  /** Made when the tool asks for its signal: most never do. @type {AbortController | undefined} */
  #abort;
  /** @type {DOMException | undefined} */
  #reason;
  #message;
  #post;
  #isOver = false;
  /** @type {Map<number, PromiseWithResolvers<Record<string, unknown>>>} */
  #asked = new Map();
  #asks = 0;

  /**
   * @param {CallMessage} message
   * @param {Post} post
   */
  constructor(message, post) {
    this.#message = message;
    this.#post = post;
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
        this.#say({ t: "progress", call, progress, ...more });
      },
      log: (level, data, logger) => {
        this.#say({ t: "log", call, level, data: plain(data), ...(logger ? { logger } : {}) });
      },
      can: (capability) => typeof caller.capabilities?.[capability] === "object",
      ask: (method, params, { key } = {}) => this.#ask(method, params, key),
      ...questions((method, params, key) => this.#ask(method, params, key)),
    };
  }

  /** @param {AnswerMessage} message */
  answer(message) {
    const waiting = this.#asked.get(message.ask);
    this.#asked.delete(message.ask);
    if (!waiting) return;
    if ("answer" in message) return waiting.resolve(message.answer);
    const { name, message: text, code = 0, data } = message.error;
    // Not caught, only this one is an error of the whole call; for the others the tool says what went wrong.
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
    this.#isOver = true;
    if (this.#asked.size) this.#rejectAll(new DOMException("The call is over.", "AbortError"));
  }

  /**
   * @param {string} method
   * @param {object} params
   * @param {string | undefined} key
   */
  async #ask(method, params, key) {
    this.signal.throwIfAborted();
    if (this.#isOver) throw new DOMException("The call is over: nobody can be asked any more.", "InvalidStateError");
    const ask = ++this.#asks;
    const waiting = /** @type {PromiseWithResolvers<Record<string, unknown>>} */ (Promise.withResolvers());
    this.#asked.set(ask, waiting);
    const { call } = this.#message;
    this.#post({ t: "ask", call, ask, method, params: plain(params), ...(key ? { key } : {}) });
    return waiting.promise;
  }

  /** @param {FromPage} message */
  #say(message) {
    if (!this.#isOver && !this.isAborted) this.#post(message);
  }

  /** @param {unknown} reason */
  #rejectAll(reason) {
    for (const waiting of this.#asked.values()) {
      waiting.promise.catch(() => {}); // a question that its handler no longer waits for is no unhandled rejection
      waiting.reject(reason);
    }
    this.#asked.clear();
  }
}

/** @param {any} error */
function toError(error) {
  const message = describe(error);
  if (!error?.isProtocolError || !Number.isInteger(error.code)) return { message };
  const { name, code, data } = error;
  return { message, name, code, ...(data === undefined ? {} : { data: plain(data) }) };
}
