/**
 * Page's end of the port to a sandboxed program: runs, calls and their limits.
 *
 * The program is not trusted. Calls in flight, sizes, and messages per second have bounds, and a call has a deadline. A program that
 * answers no ping while something runs is ended: after `hang_ms`, or after `cancel_ms` once its caller has cancelled. `onEnd` is called
 * once, and all that waits is rejected. It does not know frames, workers or the relay.
 *
 * @import { CallContext, ToolDefinition } from "/-/client.js"
 * @import { Fault } from "./frame/runtime.js"
 */

const LIMITS = {
  calls: 16,
  /** Characters of the arguments of one call, as JSON. */
  argumentLength: 1024 * 1024,
  /** Characters of one result, as JSON. */
  resultLength: 4 * 1024 * 1024,
  /** Characters of any other message, as JSON. */
  messageLength: 256 * 1024,
  messagesPerSecond: 1000,
  tools: 32,
  start_ms: 60_000,
  run_ms: 30_000,
  call_ms: 600_000,
  hang_ms: 10_000,
  cancel_ms: 2_000,
  tick_ms: 500,
};

/** @typedef {ToolDefinition & { omitsNull?: string[] }} Definition */

/** A program could not be run: what is wrong, and where. */
export class ProgramFault extends Error {
  /** @param {Fault} fault */
  constructor({ message, line, column }) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

/**
 * @typedef {object} PendingCall
 * @property {CallContext} context
 * @property {(result: object) => void} resolve
 * @property {(error: unknown) => void} reject
 */

export class ProgramPort {
  /** Resolves when the program's runtime can run something. @type {Promise<void>} */
  ready;
  #port;
  #limits;
  #onTools;
  #onEnd;
  /** @type {PromiseWithResolvers<void>} */
  #started = Promise.withResolvers();
  /** @type {Map<string, PendingCall>} */
  #calls = new Map();
  /** @type {{ run: number, resolve: (tools: Definition[]) => void, reject: (error: unknown) => void } | null} */
  #run = null;
  #lastId = 0;
  #isEnded = false;
  /** Has a caller cancelled, and has the program answered nothing since? */
  #isCancelled = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticks;
  #lastTick = 0;
  #silent_ms = 0;
  #second = 0;
  #received = 0;
  /** @type {ReturnType<typeof setTimeout>} */
  #starting;

  /**
   * @param {MessagePort} port
   * @param {object} options
   * @param {(tools: Definition[]) => void} options.onTools the program offers other tools than before, without a new run
   * @param {(reason: string, wasBusy: boolean) => void} options.onEnd `wasBusy`: something ran
   * @param {Partial<typeof LIMITS>} [options.limits]
   */
  constructor(port, { onTools, onEnd, limits = {} }) {
    this.#port = port;
    this.#limits = { ...LIMITS, ...limits };
    this.#onTools = onTools;
    this.#onEnd = onEnd;
    this.ready = this.#started.promise;
    this.ready.catch(() => {});
    port.onmessage = ({ data }) => this.#receive(data);
    const start_ms = this.#limits.start_ms;
    this.#starting = setTimeout(() => this.end(`The frame did not start within ${start_ms / 1000} s. [TR492]`), start_ms);
  }

  get isBusy() {
    return this.#run !== null || this.#calls.size > 0;
  }

  /**
   * Run a program. Resolves with the tools that it offers; rejects with a ProgramFault.
   * @param {string} source
   * @returns {Promise<Definition[]>}
   */
  async run(source) {
    await this.ready;
    if (this.#run) throw new ProgramFault({ message: "A program is being run.", line: 0, column: 0 });
    const run = ++this.#lastId;
    const { run_ms } = this.#limits;
    // A program that waits for something answers pings: an `await` that never ends.
    const late = setTimeout(() => this.end(`The program did not reach its end within ${run_ms / 1000} s and was stopped. [TR492]`), run_ms);
    try {
      return await new Promise((resolve, reject) => {
        this.#run = { run, resolve, reject };
        this.#watch();
        this.#port.postMessage({ t: "run", run, source });
      });
    } finally {
      clearTimeout(late);
    }
  }

  /**
   * @param {string} name
   * @param {unknown} args
   * @param {CallContext} context
   * @returns {Promise<object>} an MCP result
   */
  call(name, args, context) {
    const { signal, caller, trace, inputResponses, requestState } = context;
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      if (this.#isEnded) throw new Error("The program has ended. Press Run in the playground to start it again. [TR492]");
      // defence: bounds of calls in the playground
      if (this.#calls.size >= this.#limits.calls) throw new Error(`The program runs ${this.#limits.calls} calls already. Try again later. [TR493]`);
      if (JSON.stringify(args ?? {}).length > this.#limits.argumentLength) throw new Error("The arguments are larger than a program of the playground may get. [TR493]");
      const call = `p${++this.#lastId}`;
      const over = new AbortController();
      const finish = (/** @type {() => void} */ settle) => {
        if (!this.#calls.delete(call)) return;
        over.abort();
        clearTimeout(deadline);
        settle();
      };
      const cancel = (/** @type {Error} */ reason) => {
        this.#isCancelled = true;
        this.#port.postMessage({ t: "cancel", call, reason: reason.message });
        finish(() => reject(reason));
      };
      const seconds = this.#limits.call_ms / 1000;
      const deadline = setTimeout(() => cancel(new Error(`The program did not finish the call within ${seconds} s. [TR493]`)), this.#limits.call_ms);
      signal.addEventListener("abort", () => cancel(signal.reason), { signal: over.signal });
      this.#calls.set(call, { context, resolve: (result) => finish(() => resolve(result)), reject: (error) => finish(() => reject(error)) });
      this.#watch();
      const { client, principal, era, version, capabilities, key } = caller;
      const about = { client, principal, era, version, capabilities, key };
      const more = { ...(trace ? { trace } : {}), responses: inputResponses, state: requestState };
      this.#port.postMessage({ t: "call", kind: "tools", call, name, arguments: args, caller: about, ...more });
    });
  }

  /**
   * End the program: nothing is sent or received from now on.
   * @param {string} reason
   */
  end(reason) {
    if (this.#isEnded) return;
    this.#isEnded = true;
    const wasBusy = this.isBusy || this.#isCancelled;
    clearTimeout(this.#starting);
    clearInterval(this.#ticks);
    this.#port.onmessage = null;
    this.#port.close();
    const error = new Error(reason);
    this.#started.reject(error);
    this.#run?.reject(new ProgramFault({ message: reason, line: 0, column: 0 }));
    this.#run = null;
    for (const call of [...this.#calls.values()]) call.reject(error);
    this.#onEnd(reason, wasBusy);
  }

  /** @param {any} message */
  #receive(message) {
    // defence: bound of the messages of a program
    if (this.#isFlooding()) return this.end("The program sent too many messages and was stopped. [TR492]");
    if (typeof message !== "object" || message === null) return;
    this.#silent_ms = 0;
    if (message.t === "pong") {
      this.#isCancelled = false;
    } else if (message.t === "result") {
      this.#finish(message);
    } else if (JSON.stringify(message).length > this.#limits.messageLength) {
      this.end("The program sent a message that is too large and was stopped. [TR492]");
    } else {
      this.#receiveSmall(message);
    }
  }

  #isFlooding() {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) [this.#second, this.#received] = [second, 0];
    return ++this.#received > this.#limits.messagesPerSecond;
  }

  /** @param {any} message */
  #receiveSmall(message) {
    const pending = this.#calls.get(message.call);
    switch (message.t) {
      case "ready":
        clearTimeout(this.#starting);
        return this.#started.resolve();
      case "failed":
        return this.end(String(message.message));
      case "tools":
        return void (this.#areTools(message.tools) && this.#onTools(message.tools));
      case "ran":
      case "fault":
        return this.#finishRun(message);
      case "required":
        return pending?.resolve({ resultType: "input_required", inputRequests: message.requests, requestState: message.state });
      case "error":
        return pending?.reject(toError(message));
      case "progress":
        return pending?.context.progress(Number(message.progress), message.total, message.message);
      case "log":
        return pending?.context.log(message.level, message.data, message.logger);
      case "ask":
        return pending && void this.#ask(pending.context, message);
    }
  }

  /** @param {any} message */
  #finishRun(message) {
    const run = this.#run;
    if (!run || run.run !== message.run) return;
    this.#run = null;
    if (message.t === "ran" && this.#areTools(message.tools)) return run.resolve(message.tools);
    const { message: text = "The program offers something that is not a list of tools.", line, column } = message;
    run.reject(new ProgramFault({ message: String(text), line: Number(line) || 0, column: Number(column) || 0 }));
  }

  /** @param {unknown} tools */
  #areTools(tools) {
    return Array.isArray(tools) && tools.length <= this.#limits.tools && tools.every((tool) => typeof tool?.name === "string");
  }

  /** @param {any} message */
  #finish({ call, json }) {
    const pending = this.#calls.get(call);
    if (!pending) return;
    if (typeof json !== "string" || json.length > this.#limits.resultLength) {
      return pending.reject(new Error(`The result is larger than ${this.#limits.resultLength / 1024 / 1024} MB, which is the most in the playground. [TR493]`));
    }
    try {
      pending.resolve(JSON.parse(json));
    } catch (error) {
      pending.reject(error);
    }
  }

  /**
   * @param {CallContext} context
   * @param {{ call: string, ask: number, method: string, params: object, key?: string }} message
   */
  async #ask(context, { call, ask, method, params, key }) {
    const reply = { t: "answer", call, ask };
    try {
      this.#send({ ...reply, answer: await context.ask(method, params, key ? { key } : {}) });
    } catch (thrown) {
      const { name, message, code, data } = /** @type {any} */ (thrown);
      this.#send({ ...reply, error: { name, message, code, data } });
    }
  }

  /** @param {object} message */
  #send(message) {
    if (!this.#isEnded) this.#port.postMessage(message);
  }

  /** Send pings while something runs. */
  #watch() {
    if (this.#ticks !== undefined) return;
    this.#silent_ms = 0;
    this.#lastTick = performance.now();
    this.#ticks = setInterval(() => this.#tick(), this.#limits.tick_ms);
    this.#send({ t: "ping" });
  }

  #tick() {
    const now = performance.now();
    // A page that was frozen or slow must not count that time as the program's silence.
    this.#silent_ms += Math.min(now - this.#lastTick, 2 * this.#limits.tick_ms);
    this.#lastTick = now;
    const limit_ms = this.#isCancelled ? this.#limits.cancel_ms : this.#limits.hang_ms;
    // defence: a program that hangs
    if (this.#silent_ms > limit_ms) return this.end(`The program did not answer for ${limit_ms / 1000} s and was stopped. [TR492]`);
    if (this.isBusy || this.#isCancelled) return this.#send({ t: "ping" });
    clearInterval(this.#ticks);
    this.#ticks = undefined;
  }
}

/** @param {any} message */
function toError({ message, name, code, data }) {
  const error = new Error(String(message));
  return name && Number.isInteger(code) ? Object.assign(error, { name, code, data, isProtocolError: true }) : error;
}
