/**
 * Sandboxed frame of one program: an iframe with an opaque origin, and the port to the runtime in it.
 *
 * The frame's document comes from its own route, whose policy has `sandbox` too. The page sends it a port and nothing else, once. If
 * the frame loads again, its program has left the document, and is ended.
 */

import { ProgramPort } from "./program_port.js";

const FRAME = "/-/demo/playground/frame/frame.html";

/**
 * @typedef {"python" | "javascript"} Language
 * @typedef {import("./program_port.js").Definition} Definition
 */

export class Sandbox {
  /** @type {ProgramPort} */
  port;
  #frame = document.createElement("iframe");

  /**
   * @param {HTMLElement} place
   * @param {Language} language
   * @param {object} events
   * @param {(tools: Definition[]) => void} events.onTools
   * @param {(reason: string, wasBusy: boolean) => void} events.onEnd the frame is removed already
   */
  constructor(place, language, { onTools, onEnd }) {
    const { port1, port2 } = new MessageChannel();
    this.port = new ProgramPort(port1, {
      onTools,
      onEnd: (reason, wasBusy) => {
        this.#frame.remove();
        onEnd(reason, wasBusy);
      },
    });
    // defence: code of the playground in an opaque origin
    this.#frame.sandbox.value = "allow-scripts";
    this.#frame.title = "Output of the program";
    this.#frame.dataset.language = language;
    this.#frame.className = "is-waiting";
    this.#frame.src = FRAME;
    let hasPort = false;
    this.#frame.addEventListener("load", () => {
      if (hasPort) return this.port.end("The program left its page and was stopped.");
      hasPort = true;
      // An opaque origin can't be named; only a document of the frame's route can be there (`frame-src`).
      this.#frame.contentWindow?.postMessage({ language }, "*", [port2]);
    });
    place.append(this.#frame);
  }

  /** @param {boolean} isShown */
  show(isShown) {
    this.#frame.classList.toggle("is-waiting", !isShown);
  }

  /** @param {string} reason */
  close(reason) {
    this.port.end(reason);
  }
}
