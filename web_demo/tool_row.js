/**
 * One tool in the list of the demo page: what it does, its arguments, Run, and the result of the last run.
 *
 * The call goes through the relay as the call of any client does. One call at a time for each row. Results are shown as text; images
 * only in raster formats.
 */

import { element, setText } from "/-/page/element.js";
import { toolForm } from "/-/page/tool_form.js";
import { resultText, runTool } from "/-/page/tool_runner.js";
import { callText } from "./call_text.js";
import { OWN_CLIENT } from "./drawing/people.js";
import { sampleArguments } from "./sample_arguments.js";

/**
 * @typedef {import("/-/client.js").CatalogueEntry} Entry
 * @typedef {import("/-/page/tool_runner.js").ToolDefinition} ToolDefinition
 * @typedef {import("/-/page/tool_runner.js").ToolResult} ToolResult
 */

const IMAGE = /^image\/(png|jpeg|webp)$/;
const MAX_TEXT = 4000;

export class ToolRow {
  #server;
  #turn = 0;
  #definition = "";
  /** The proposed arguments, as JSON. */
  #sample = "";
  /** @type {Record<string, any>} */
  #schema = {};
  #form = toolForm({});
  /** @type {AbortController | null} */
  #running = null;
  #run = element("button", { type: "button", class: "button run", disabled: true }, "Run");
  #call = element("code", { class: "tool-call" });
  #about = element("p", { class: "hint about" });
  #fields = element("form", { class: "stack", novalidate: true });
  #arguments = element("details", { class: "arguments" }, element("summary", {}, this.#call), this.#fields);
  #output = element("div", { class: "output", role: "status" });

  /** @param {string} server @param {Entry} entry */
  constructor(server, { name, owner }) {
    this.#server = server;
    this.name = name;
    setText(this.#call, name);
    this.#run.setAttribute("aria-label", `Run ${name}`);
    this.#run.addEventListener("click", () => (this.#running ? this.#running.abort(new Error("You cancelled the call.")) : void this.run()));
    this.#fields.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run();
    });
    this.#fields.addEventListener("change", () => this.#showCall());
    const words = element("div", { class: "words" }, this.#arguments, this.#about);
    this.element = element("li", { "data-tool": name, "data-owner": owner }, words, this.#run, this.#output);
  }

  /** @param {string | undefined} description */
  describe(description) {
    setText(this.#about, description ?? "");
  }

  /** @param {ToolDefinition} definition */
  define({ inputSchema = {}, annotations = {} }) {
    const text = JSON.stringify([inputSchema, annotations]);
    if (text === this.#definition) return;
    this.#definition = text;
    this.#schema = inputSchema;
    this.#form = toolForm(inputSchema, sampleArguments(this.name, this.#turn));
    this.#fields.replaceChildren(this.#form.element);
    if (this.#form.isEmpty) this.#fields.replaceChildren(element("p", { class: "hint" }, "It takes no arguments."));
    this.#run.disabled = false;
    this.element.toggleAttribute("data-asks", annotations.destructiveHint === true);
    this.#sample = this.#fields.checkValidity() ? JSON.stringify(this.#form.read()) : "";
    this.#showCall();
  }

  /** Call the tool with the arguments of the form. Resolves when the answer is shown; null: nothing was called. */
  async run() {
    if (this.#running || !this.#definition) return null;
    // A control in a closed <details> can't show what is wrong.
    if (!this.#fields.checkValidity()) this.#arguments.open = true;
    const args = this.#form.read();
    if (!args) return null;
    const running = (this.#running = new AbortController());
    setText(this.#run, "Cancel");
    this.element.dataset.phase = "running";
    try {
      const { name } = this;
      const result = await runTool({
        server: this.#server,
        tool: name,
        args,
        schema: this.#schema,
        client: OWN_CLIENT,
        signal: running.signal,
        onProgress: ({ progress, total, message }) =>
          this.#say(message ?? (total ? `${Math.floor((100 * progress) / total)} %` : String(progress))),
      });
      this.element.dataset.phase = result.isError ? "failed" : "done";
      this.#output.replaceChildren(...resultElements(result));
      return result;
    } catch (error) {
      this.element.dataset.phase = "failed";
      this.#say(error instanceof Error ? error.message : String(error));
      return null;
    } finally {
      this.#running = null;
      setText(this.#run, "Run");
      if (JSON.stringify(args) === this.#sample) this.#nextSample();
    }
  }

  /** The arguments that were proposed were used. Those that the visitor typed stay. */
  #nextSample() {
    this.#form.fill(sampleArguments(this.name, ++this.#turn));
    this.#sample = JSON.stringify(this.#form.read());
    this.#showCall();
  }

  #showCall() {
    // A form with a wrong value is read when Run is pressed, which shows the fault.
    if (this.#fields.checkValidity()) setText(this.#call, callText(this.name, this.#form.read() ?? {}));
  }

  /** @param {string} text */
  #say(text) {
    this.#output.replaceChildren(element("p", { class: "hint" }, text));
  }
}

/** @param {ToolResult} result */
function resultElements(result) {
  const images = (result.content ?? []).filter(({ type, mimeType }) => type === "image" && IMAGE.test(mimeType ?? ""));
  const text = resultText({ ...result, content: (result.content ?? []).filter((block) => !images.includes(block)) });
  const shown = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length - MAX_TEXT} characters more)` : text;
  return [
    ...(shown ? [element("p", { class: "result" }, shown)] : []),
    ...images.map(({ data, mimeType }) => element("img", { src: `data:${mimeType};base64,${data}`, alt: "The image that the tool returned" })),
  ];
}
