/**
 * Host of the playground's program: runs it in a sandbox, and offers its tools through the page's connection.
 *
 * One program at a time. A run that fails leaves the tools of the last program in place; one that succeeds replaces them in one step,
 * and the next call uses the new code. Python's interpreter is started in advance and serves all runs; JavaScript gets a new frame for
 * each run. A program that was ended is withdrawn.
 *
 * Chromium runs all frames of the playground in one process. A JavaScript program that computes without a pause ends with that process,
 * and the process ends with its last frame. So the frame of Python is replaced too after such a program.
 *
 * @import { CallContext, Connection, Tool } from "/-/client.js"
 * @import { Definition, Language } from "./sandbox.js"
 */

import { Sandbox } from "./sandbox.js";

/**
 * @typedef {{ tool: Tool, text: string, withdrawal: AbortController }} Offered
 */

export class ProgramHost {
  #connection;
  #place;
  #onTools;
  #onEnd;
  /** The sandbox whose tools are offered. @type {Sandbox | null} */
  #current = null;
  /** @type {Sandbox} */
  #python;
  /** The sandbox whose program has not reached its end. @type {Sandbox | null} */
  #running = null;
  /** Was a JavaScript program ended in the middle of its work, while Python's frame had to stay? */
  #mayBeStuck = false;
  /** @type {Map<string, Offered>} */
  #offered = new Map();

  /**
   * @param {Connection} connection
   * @param {HTMLElement} place of the frames
   * @param {object} events
   * @param {(tools: Definition[]) => void} events.onTools
   * @param {(reason: string) => void} events.onEnd the program was ended, and its tools are withdrawn
   */
  constructor(connection, place, { onTools, onEnd }) {
    this.#connection = connection;
    this.#place = place;
    this.#onTools = onTools;
    this.#onEnd = onEnd;
    this.#python = this.#newSandbox("python");
  }

  /** Resolves when Python can run a program. */
  get pythonReady() {
    return this.#python.port.ready;
  }

  /**
   * Run a program, and offer its tools. Rejects with a ProgramFault; then nothing has changed.
   * @param {Language} language
   * @param {string} source
   */
  async run(language, source) {
    if (this.#running) return;
    if (language === "javascript" && this.#mayBeStuck) this.#renewPython();
    const sandbox = language === "python" ? this.#python : this.#newSandbox("javascript");
    this.#running = sandbox;
    try {
      const tools = await sandbox.port.run(source);
      const last = this.#current;
      this.#current = sandbox;
      this.#offer(tools);
      this.#show(last, sandbox);
    } catch (error) {
      if (sandbox !== this.#python) sandbox.close("The program was not run.");
      throw error;
    } finally {
      this.#running = null;
    }
  }

  /** End the program now, whatever it does: the one that is being run, or else the one whose tools are offered. */
  stop() {
    (this.#running ?? this.#current)?.close("You stopped the program.");
  }

  /**
   * @param {Sandbox | null} last
   * @param {Sandbox} next
   */
  #show(last, next) {
    if (last !== next) {
      last?.show(false);
      if (last !== this.#python) last?.close("Another program has replaced this one.");
    }
    next.show(true);
  }

  /** @param {Language} language */
  #newSandbox(language) {
    const sandbox = new Sandbox(this.#place, language, {
      onTools: (tools) => sandbox === this.#current && this.#offer(tools),
      onEnd: (reason, wasBusy) => this.#ended(sandbox, reason, wasBusy),
    });
    return sandbox;
  }

  /**
   * @param {Sandbox} sandbox
   * @param {string} reason
   * @param {boolean} wasBusy
   */
  #ended(sandbox, reason, wasBusy) {
    const isPython = sandbox === this.#python;
    if (isPython) this.#python = this.#newSandbox("python");
    if (sandbox === this.#current) {
      this.#current = null;
      this.#offer([]);
      this.#onEnd(reason);
    }
    if (isPython || !wasBusy) return;
    if (this.#current === this.#python) this.#mayBeStuck = true;
    else this.#renewPython();
  }

  #renewPython() {
    this.#mayBeStuck = false;
    this.#python.close("The program before this one computed without a pause, and was ended with all frames.");
  }

  /** Offer these tools, and withdraw all others. @param {Definition[]} tools */
  #offer(tools) {
    const names = new Set(tools.map(({ name }) => name));
    for (const [name, { withdrawal }] of this.#offered) {
      if (names.has(name)) continue;
      this.#offered.delete(name);
      withdrawal.abort();
    }
    for (const definition of tools) this.#offerOne(definition);
    this.#onTools(tools);
  }

  /** @param {Definition} definition */
  #offerOne(definition) {
    const { name } = definition;
    const text = JSON.stringify(definition);
    const known = this.#offered.get(name);
    if (known?.text === text) return; // its function calls the current program
    const { tool, withdrawal } = known ?? { tool: /** @type {Tool} */ ({}), withdrawal: new AbortController() };
    // The same object again: clients see a changed tool, never a missing one.
    for (const member of Object.keys(tool)) delete (/** @type {any} */ (tool)[member]);
    const execute = (/** @type {unknown} */ args, /** @type {CallContext} */ context) => this.#call(name, args, context);
    this.#connection.offerTool(Object.assign(tool, definition, { execute }), known ? {} : { signal: withdrawal.signal });
    this.#offered.set(name, { tool, text, withdrawal });
  }

  /**
   * @param {string} name
   * @param {unknown} args
   * @param {CallContext} context
   */
  #call(name, args, context) {
    if (!this.#current) throw new Error("The program has ended. Press Run in the playground to start it again. [TR492]");
    return this.#current.port.call(name, args, context);
  }
}
