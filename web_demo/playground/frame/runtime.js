/**
 * Runtime of a program in the playground: its tools, the calls of them, and the port to the page.
 *
 * The same code serves JavaScript in the frame and Python in the frame's worker. A program gets an object with the `offerTool` of a
 * connection; client.js's own classes check arguments and convert results. The messages of a call are those between page and worker
 * (ports.d.ts). It does not know how a program is executed, and enforces no limits: the page does, in program_port.js.
 *
 * @import { CallMessage, AnswerMessage } from "/-/ports.js"
 */

import { Offers } from "/-/client/offers.js";
import { RunningCalls } from "/-/client/running_calls.js";

/**
 * @typedef {{ message: string, line: number, column: number }} Fault a line of 0: unknown. Both count from 1.
 * @typedef {import("/-/client.js").Tool & { omitsNull?: string[] }} Tool
 * @typedef {{ offerTool(tool: Tool, options?: { signal?: AbortSignal }): void }} Connection
 */

/** What a program gets in the place of a page's connection. */
class OfferedTools {
  offers = new Offers();
  /** @type {Map<string, Tool>} */
  tools = new Map();
  #changed;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
  }

  /** @type {Connection["offerTool"]} */
  offerTool = (tool, { signal } = {}) => {
    if (signal?.aborted) return;
    this.offers.addTool(tool);
    this.tools.set(tool.name, tool);
    signal?.addEventListener("abort", () => {
      if (!this.offers.remove("tools", tool.name, tool)) return;
      this.tools.delete(tool.name);
      this.#changed();
    });
    this.#changed();
  };

  offerResource() {
    throw new Error("A program of the playground offers tools only. Resources work in your own page.");
  }

  offerPrompt() {
    throw new Error("A program of the playground offers tools only. Prompts work in your own page.");
  }

  resourceUpdated() {}

  definitions() {
    return (this.offers.definitions().tools ?? []).map(({ since_ms, ...definition }) => {
      const { omitsNull } = this.tools.get(definition.name) ?? {};
      return { ...definition, ...(omitsNull ? { omitsNull } : {}) };
    });
  }
}

/**
 * Serve the page over this port.
 * @param {MessagePort} port
 * @param {(source: string, connection: OfferedTools) => Promise<Fault | null>} execute runs a program; the fault that stopped it
 */
export function serve(port, execute) {
  let hasRun = false;
  let isAnnounced = true;
  const announce = () => {
    isAnnounced = true;
    if (hasRun) port.postMessage({ t: "tools", tools: offered.definitions() });
  };
  const offered = new OfferedTools(() => {
    if (!isAnnounced) return;
    isAnnounced = false;
    queueMicrotask(announce);
  });
  const calls = new RunningCalls((message, context) => offered.offers.run(message, context));

  /** @param {{ source: string, run: number }} message */
  async function run({ source, run }) {
    hasRun = false;
    const fault = await execute(source, offered);
    hasRun = true;
    port.postMessage(fault ? { t: "fault", run, ...fault } : { t: "ran", run, tools: offered.definitions() });
  }

  port.onmessage = ({ data }) => {
    if (data.t === "ping") port.postMessage({ t: "pong" });
    else if (data.t === "run") void run(data);
    else if (data.t === "call") calls.run(/** @type {CallMessage} */ (data), (reply) => port.postMessage(reply));
    else if (data.t === "cancel") calls.cancel(data.call, data.reason);
    else if (data.t === "answer") calls.answer(/** @type {AnswerMessage} */ (data));
  };
  port.postMessage({ t: "ready" });
}
