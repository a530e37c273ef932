/**
 * Questions that a server asks its client in a call of the console: elicitation, sampling and roots, answered by hand.
 *
 * `askQuestions(place, requests)` shows a form for each question and returns the answers by their keys. Texts of the server go in as
 * text nodes; an address is shown, and opened only by the person.
 */

import { element } from "../element.js";
import { ROOTS_LIST, SAMPLING_CREATE_MESSAGE } from "../mcp_methods.js";
import { toolForm } from "../tool_form.js";

/** @typedef {{ method: string, params?: Record<string, any> }} Question */

/**
 * @param {HTMLElement} place
 * @param {Record<string, Question>} questions
 * @param {AbortSignal} signal
 * @returns {Promise<Record<string, unknown>>}
 */
export async function askQuestions(place, questions, signal) {
  /** @type {Record<string, unknown>} */
  const answers = {};
  for (const [key, question] of Object.entries(questions)) answers[key] = await askQuestion(place, question, signal);
  return answers;
}

/**
 * @param {HTMLElement} place
 * @param {Question} question
 * @param {AbortSignal} signal
 */
function askQuestion(place, question, signal) {
  const { title, fields, read, decline } = formOf(question);
  const send = element("button", { type: "submit", class: "button is-primary" }, "Answer");
  const refuse = element("button", { type: "button", class: "button" }, "Decline");
  const form = element("form", { class: "notice stack question", novalidate: true, "data-testid": "question" }, element("h4", {}, title), ...fields, element("div", { class: "row" }, send, refuse));
  place.replaceChildren(form);
  send.focus();
  return new Promise((resolve, reject) => {
    const end = (/** @type {() => void} */ settle) => {
      place.replaceChildren();
      settle();
    };
    signal.addEventListener("abort", () => end(() => reject(signal.reason)), { once: true });
    refuse.addEventListener("click", () => end(() => resolve(decline)));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = read();
      if (value !== null) end(() => resolve(value));
    });
  });
}

/**
 * @param {Question} question
 * @returns {{ title: string, fields: HTMLElement[], read: () => unknown, decline: unknown }} `read` returns null if a field is wrong
 */
function formOf({ method, params = {} }) {
  if (method === SAMPLING_CREATE_MESSAGE) return samplingForm(params);
  if (method === ROOTS_LIST) return rootsForm();
  const decline = { action: "decline" };
  const message = element("p", {}, String(params.message ?? ""));
  if (params.url) {
    const link = element("p", {}, element("a", { href: String(params.url), target: "_blank", rel: "noreferrer noopener" }, String(params.url)));
    const isWeb = /^https?:\/\//u.test(String(params.url));
    return { title: "The server asks you to open a page", fields: [message, isWeb ? link : element("code", {}, String(params.url))], read: () => ({ action: "accept" }), decline };
  }
  const fields = toolForm(params.requestedSchema);
  return {
    title: "The server asks",
    fields: [message, fields.element],
    read: () => {
      const content = fields.read();
      return content && { action: "accept", content };
    },
    decline,
  };
}

/** @param {Record<string, any>} params */
function samplingForm({ messages = [], systemPrompt = "", maxTokens }) {
  const reply = element("textarea", { rows: 4, required: true });
  const said = messages.map((/** @type {any} */ message) => element("p", {}, `${message.role}: ${[message.content].flat().map((/** @type {any} */ block) => block?.text ?? `[${block?.type}]`).join("\n")}`));
  const field = element("label", { class: "field" }, element("span", {}, "Your answer as the model"), reply);
  return {
    title: `The server asks the model${maxTokens ? ` for at most ${maxTokens} tokens` : ""}`,
    fields: [...(systemPrompt ? [element("p", { class: "hint" }, systemPrompt)] : []), ...said, field],
    read: () => (reply.reportValidity() ? { role: "assistant", model: "a person at the console", stopReason: "endTurn", content: { type: "text", text: reply.value } } : null),
    decline: { role: "assistant", model: "a person at the console", stopReason: "endTurn", content: { type: "text", text: "" } },
  };
}

function rootsForm() {
  const list = element("textarea", { rows: 3, placeholder: "file:///projects/notes" });
  const field = element("label", { class: "field" }, element("span", {}, "One address for each line"), list);
  const roots = () => list.value.split("\n").map((line) => line.trim()).filter(Boolean).map((uri) => ({ uri }));
  return { title: "The server asks for the client’s roots", fields: [field], read: () => ({ roots: roots() }), decline: { roots: [] } };
}
