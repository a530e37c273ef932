/**
 * List of the last calls on the relay's page: time, method, caller and outcome, the newest first.
 *
 * Names and arguments come from other programs and go in as text nodes. The list is drawn again only after a call, and never
 * while the user selects text in it. It requests nothing: page.js does.
 */

import { command } from "./clients.js";
import { byId, duration, element, setText } from "./element.js";
import { TOOLS_CALL } from "./mcp_methods.js";

/**
 * @typedef {object} Call one line of the call log
 * @property {string} time
 * @property {string} [server]
 * @property {string} [method]
 * @property {string} [name]
 * @property {string} [principal]
 * @property {string | null} [client]
 * @property {string} outcome
 * @property {string} [why]
 * @property {number} [ms]
 * @property {number} [calls] how many calls have no entry
 * @property {unknown} [arguments]
 *
 * @typedef {{ is_on: boolean, has_arguments: boolean, mark: string, calls: Call[] | null }} CallLog
 */

const MAX_SHOWN = 50;

export function callsPanel() {
  const section = byId("calls", HTMLElement);
  const list = byId("calls-list", HTMLElement);
  const about = byId("calls-about", HTMLElement);
  const todo = byId("calls-command", HTMLElement);
  let mark = "";

  return {
    get mark() {
      return mark;
    },

    hide() {
      section.hidden = true;
    },

    /** @param {CallLog} log @param {string} logsCommand */
    update({ is_on, has_arguments, mark: now, calls }, logsCommand) {
      section.hidden = false;
      setText(about, aboutLog(is_on, has_arguments, list.childElementCount + (calls?.length ?? 0)));
      todo.hidden = !is_on;
      const text = `${logsCommand} --calls`;
      if (todo.querySelector("code")?.textContent !== text) todo.replaceChildren(command(text));
      if (!calls || isSelecting(list)) return;
      mark = now;
      list.replaceChildren(...calls.slice(-MAX_SHOWN).reverse().map(row));
    },
  };
}

/**
 * @param {boolean} isOn
 * @param {boolean} hasArguments
 * @param {number} count
 */
function aboutLog(isOn, hasArguments, count) {
  if (!isOn) return "The call log is off: the relay was started with --call-log none.";
  const what = hasArguments ? "with their arguments" : "without their arguments (--call-log-arguments adds them)";
  return `${count ? "" : "No calls yet. "}The call log has all calls, ${what}. This command shows them:`;
}

/** @param {HTMLElement} list */
function isSelecting(list) {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.containsNode(list, true));
}

/** @param {Call} call */
function row(call) {
  const when = new Date(call.time);
  const time = element("time", { datetime: call.time, title: when.toLocaleString() }, when.toLocaleTimeString());
  if (call.calls !== undefined) {
    const text = `${call.calls} calls are not in the log: they came too fast`;
    return element("li", { "data-outcome": call.outcome }, time, element("p", { class: "about" }, text));
  }
  const what = call.method === TOOLS_CALL ? "" : `${call.method} `;
  const who = [call.principal, call.client].filter(Boolean).join(", ");
  const outcome = call.outcome.replaceAll("_", " ");
  return element(
    "li",
    { "data-outcome": call.outcome, "data-call": call.name },
    time,
    element(
      "div",
      {},
      element("p", { class: "name" }, `${call.server} · ${what}${call.name}`),
      element("p", { class: "about" }, `by ${who}${call.why ? `: ${call.why}` : ""}`),
      call.arguments === undefined ? null : element("p", { class: "about mono" }, JSON.stringify(call.arguments)),
    ),
    element("p", { class: "ending" }, `${outcome}, ${duration(call.ms ?? 0)}`),
  );
}
