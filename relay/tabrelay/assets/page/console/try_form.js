/**
 * Form that runs one request from the console: fields of its schema or raw JSON, tab, progress, questions, cancel, and the result.
 *
 * One run at a time for each form. A destructive tool asks in its tab, as for any client. The result is shown as a call's result is,
 * with a link to its row.
 */

import { duration, element } from "../element.js";
import { COMPLETION_COMPLETE, PROGRESS } from "../mcp_methods.js";
import { toolForm } from "../tool_form.js";
import { contentView } from "./content_view.js";
import { jsonTree } from "./json_tree.js";
import { pinnedTab } from "./pinned_tabs.js";
import { askQuestions } from "./question_form.js";

const MAX_ROUNDS = 16;
const COMPLETE_MS = 250;

/**
 * @typedef {import("./relay_api.js").Detail} Detail
 *
 * @typedef {object} Trial what the form runs
 * @property {string} server
 * @property {string} method
 * @property {Record<string, any>} [schema] of the fields
 * @property {Record<string, unknown>} [values]
 * @property {(values: Record<string, unknown>) => Record<string, unknown>} params of the request, from the fields
 * @property {(params: Record<string, any>) => Record<string, unknown>} [fields] the fields, from params
 * @property {string} [of] the call that is sent again
 * @property {string} [note]
 * @property {Record<string, unknown>} [complete] `ref` of `completion/complete`
 * @property {{ id: string, title: string }[]} [tabs]
 *
 * @typedef {{ runner: import("./call_runner.js").CallRunner, open: (id: string) => void }} TryContext
 */

/**
 * @param {Trial} trial
 * @param {TryContext} context
 */
export function tryForm(trial, { runner, open }) {
  const { server, method, of } = trial;
  const { form, fields, raw, rawField, toggle, tab, run, cancel, status } = makeForm(trial);
  const questions = element("div");
  const output = element("div", { class: "stack is-close", "data-testid": "outcome" });
  let running = new AbortController();

  /** The params of the request; null if a field is wrong. @returns {Record<string, unknown> | null} */
  const read = () => {
    if (rawField.hidden) {
      const values = fields.read();
      return values && trial.params(values);
    }
    try {
      raw.setCustomValidity("");
      return JSON.parse(raw.value || "{}");
    } catch (error) {
      raw.setCustomValidity(`This is not JSON: ${error instanceof Error ? error.message : error}`);
      raw.reportValidity();
      return null;
    }
  };
  toggle.addEventListener("click", () => {
    const params = read();
    if (!params) return;
    const isRaw = rawField.hidden;
    if (isRaw) raw.value = JSON.stringify(params, null, 2);
    else if (trial.fields) fields.fill(trial.fields(params));
    rawField.hidden = !isRaw;
    fields.element.hidden = isRaw;
    toggle.setAttribute("aria-pressed", String(isRaw));
  });
  raw.addEventListener("input", () => raw.setCustomValidity(""));
  cancel.addEventListener("click", () => running.abort(new Error("You cancelled the call.")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const params = read();
    if (!params || run.disabled) return;
    running = new AbortController();
    run.disabled = true;
    cancel.hidden = false;
    output.replaceChildren();
    status.textContent = "Running.";
    try {
      const target = tab?.value ? { tab: tab.value } : {};
      const detail = await runRounds(runner, { server, method, params, ...target, ...(of ? { of } : {}) }, running.signal, status, questions);
      showOutcome(detail, status, output, open);
    } catch (error) {
      status.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      questions.replaceChildren();
      run.disabled = false;
      cancel.hidden = true;
    }
  });
  if (trial.complete) offerCompletion(fields.element, server, trial.complete, runner);
  return element("div", { class: "stack" }, form, questions, output);
}

/** The form's elements. @param {Trial} trial */
function makeForm({ server, schema, values, of, note = "", tabs = [] }) {
  const fields = toolForm(schema, values);
  const raw = element("textarea", { class: "mono", rows: 8, spellcheck: "false", "aria-label": "Parameters as JSON" });
  const rawField = element("label", { class: "field", hidden: true }, element("span", {}, "Parameters"), raw);
  const toggle = element("button", { type: "button", class: "button is-quiet is-small", "aria-pressed": "false" }, "Raw JSON");
  const options = tabs.map(({ id, title }) => element("option", { value: id }, title || id));
  const tab = tabs.length ? element("select", {}, element("option", { value: "" }, "As for any client"), ...options) : null;
  if (tab && tabs.some(({ id }) => id === pinnedTab(server))) tab.value = pinnedTab(server);
  const run = element("button", { type: "submit", class: "button is-primary" }, of ? "Send" : "Run");
  const cancel = element("button", { type: "button", class: "button", hidden: true }, "Cancel");
  const status = element("p", { class: "hint", role: "status" });
  const form = element(
    "form",
    { class: "stack try", novalidate: true, "data-testid": "try" },
    note ? element("p", { class: "hint" }, note) : null,
    fields.element,
    rawField,
    tab ? element("label", { class: "field" }, element("span", {}, "Tab"), tab) : null,
    element("div", { class: "row" }, run, cancel, toggle),
    status,
  );
  return { form, fields, raw, rawField, toggle, tab, run, cancel, status };
}

/**
 * The rounds of one call: the server may ask, and gets the answers with the next request.
 *
 * @param {import("./call_runner.js").CallRunner} runner
 * @param {import("./call_runner.js").RunRequest} request
 * @param {AbortSignal} signal
 * @param {HTMLElement} status
 * @param {HTMLElement} place
 * @returns {Promise<Detail>}
 */
async function runRounds(runner, request, signal, status, place) {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const detail = await runner.run(request, { signal, onDetail: (now) => (status.textContent = progressOf(now)) });
    const result = detail.response?.result;
    if (result?.resultType !== "input_required") return detail;
    status.textContent = "The server asks.";
    request = { of: detail.row.id, responses: await askQuestions(place, result.inputRequests ?? {}, signal) };
    status.textContent = "Running.";
  }
  throw new Error(`The server asked ${MAX_ROUNDS} times.`);
}

/** @param {Detail} detail */
function progressOf({ row, notices }) {
  const last = notices.findLast(({ method }) => method === PROGRESS);
  const params = last?.params;
  if (row.held) return "A breakpoint holds it.";
  if (!params) return row.state === "waiting" ? "Waiting for the server." : "Running.";
  const part = params.total ? `${params.progress} of ${params.total}` : String(params.progress);
  return params.message ? `${part}: ${params.message}` : part;
}

/**
 * @param {Detail} detail
 * @param {HTMLElement} status
 * @param {HTMLElement} output
 * @param {(id: string) => void} open
 */
function showOutcome({ row, response }, status, output, open) {
  const result = response?.result;
  const isBad = Boolean(response?.error || result?.isError || row.state !== "done");
  status.textContent = `${row.state === "cancelled" ? "Cancelled" : isBad ? "Failed" : "Result"} after ${duration(row.ms ?? 0)}:`;
  const link = element("button", { type: "button", class: "button is-small" }, "Open this call");
  link.addEventListener("click", () => open(row.id));
  const message = response?.error?.message ?? row.error?.message;
  output.replaceChildren(
    ...(message ? [element("p", { class: "notice is-bad" }, String(message))] : []),
    ...[result ? contentView(result) : null].filter((each) => each !== null),
    ...(response ? [jsonTree(result ?? response.error ?? response, "the result")] : []),
    element("div", { class: "row" }, link),
  );
}

/**
 * Suggestions of the server while a person types, for arguments of prompts and resource templates.
 *
 * @param {HTMLElement} place
 * @param {string} server
 * @param {Record<string, unknown>} ref
 * @param {import("./call_runner.js").CallRunner} runner
 */
function offerCompletion(place, server, ref, runner) {
  for (const input of place.querySelectorAll("input[type=text]")) {
    if (!(input instanceof HTMLInputElement)) continue;
    const list = element("datalist", { id: `values-${crypto.randomUUID()}` });
    input.setAttribute("list", list.id);
    input.after(list);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const params = { ref, argument: { name: input.name, value: input.value } };
        const detail = await runner.run({ server, method: COMPLETION_COMPLETE, params }).catch(() => null);
        const values = detail?.response?.result?.completion?.values ?? [];
        list.replaceChildren(...values.map((/** @type {unknown} */ value) => element("option", { value: String(value) })));
      }, COMPLETE_MS);
    });
  }
}
