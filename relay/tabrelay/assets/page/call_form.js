/**
 * Form that calls a tool through the relay: arguments, progress, questions of the tool, and the result.
 *
 * One call at a time for each form. A result may be large; its text is cut. Images are shown as data, only in raster formats and SVG.
 */

import { duration, element } from "./element.js";
import { ELICITATION_CREATE } from "./mcp_methods.js";
import { toolForm } from "./tool_form.js";
import { resultText, runTool } from "./tool_runner.js";

const MAX_TEXT = 10_000;
const IMAGE = /^image\/(png|jpeg|gif|webp|svg\+xml)$/;

/** @typedef {import("./tool_runner.js").ToolResult} ToolResult */
/** @typedef {import("./tool_runner.js").Question} Question */

/**
 * @typedef {object} CallFormOptions
 * @property {string} client the name that calls show in lists and in questions to the user
 * @property {string} [label] of the button
 * @property {Record<string, unknown>} [values] arguments that are filled in
 */

/**
 * @param {string} server
 * @param {{ name: string, inputSchema?: Record<string, any> }} tool
 * @param {CallFormOptions} options
 * @returns {HTMLElement}
 */
export function callForm(server, { name, inputSchema }, { client, label = "Call it", values }) {
  const fields = toolForm(inputSchema, values);
  const call = element("button", { type: "submit", class: "button" }, label);
  const cancel = element("button", { type: "button", class: "button is-quiet", hidden: true }, "Cancel");
  const status = element("p", { class: "hint", role: "status" });
  const output = element("div", { class: "result stack" });
  const form = element("form", { class: "stack", novalidate: true }, fields.element, element("div", { class: "row" }, call, cancel), status, output);
  let running = new AbortController();

  cancel.addEventListener("click", () => running.abort(new Error("You cancelled the call.")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const args = fields.read();
    if (!args || call.disabled) return;
    running = new AbortController();
    call.disabled = true;
    cancel.hidden = false;
    output.replaceChildren();
    status.textContent = "Calling.";
    const started_ms = performance.now();
    try {
      const result = await runTool({
        server,
        tool: name,
        args,
        schema: inputSchema ?? {},
        client,
        signal: running.signal,
        onProgress: ({ progress, total, message }) => {
          status.textContent = message ?? (total ? `${progress} of ${total}` : String(progress));
        },
        onQuestion: (question) => answer(output, question, running.signal),
      });
      status.textContent = `${result.isError ? "The tool failed" : "Result"} after ${duration(performance.now() - started_ms)}:`;
      output.replaceChildren(...resultElements(result));
    } catch (error) {
      status.textContent = error instanceof Error ? error.message : String(error);
      output.replaceChildren();
    } finally {
      call.disabled = false;
      cancel.hidden = true;
    }
  });
  return form;
}

/**
 * Ask the visitor what a tool asks its client.
 * @param {HTMLElement} place
 * @param {Question} question
 * @param {AbortSignal} signal
 * @returns {Promise<Record<string, unknown>>}
 */
function answer(place, { method, params = {} }, signal) {
  if (method !== ELICITATION_CREATE || params.url) return Promise.reject(new Error(`The tool asks for ${method}, which this form does not answer.`));
  const fields = toolForm(params.requestedSchema);
  const send = element("button", { type: "button", class: "button is-primary" }, "Answer");
  const decline = element("button", { type: "button", class: "button" }, "Decline");
  const message = element("p", {}, String(params.message ?? ""));
  place.replaceChildren(element("div", { class: "notice stack question" }, message, fields.element, element("div", { class: "row" }, send, decline)));
  return new Promise((resolve, reject) => {
    const end = (/** @type {() => void} */ settle) => {
      place.replaceChildren();
      settle();
    };
    signal.addEventListener("abort", () => end(() => reject(signal.reason)), { once: true });
    decline.addEventListener("click", () => end(() => resolve({ action: "decline" })));
    send.addEventListener("click", () => {
      const content = fields.read();
      if (content) end(() => resolve({ action: "accept", content }));
    });
  });
}

/** @param {ToolResult} result */
function resultElements(result) {
  const images = (result.content ?? []).filter(({ type, mimeType }) => type === "image" && IMAGE.test(mimeType ?? ""));
  const others = (result.content ?? []).filter((block) => !images.includes(block));
  const text = resultText({ ...result, content: others });
  const shown = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… (${text.length - MAX_TEXT} characters more)` : text;
  return [
    ...(shown ? [element("pre", { class: "mono", tabindex: "0", role: "region", "aria-label": "Result" }, shown)] : []),
    ...images.map(({ data, mimeType }) => element("img", { src: `data:${mimeType};base64,${data}`, alt: "Image that the tool returned" })),
  ];
}
