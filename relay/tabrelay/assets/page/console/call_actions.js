/**
 * Actions of a call in the drawer: copy as a command or program, resend, edit and resend, compare, save.
 *
 * Each button shows its outcome below the row of buttons. Two calls are compared by marking one and opening the other.
 */

import { codeBlock, copyText } from "../code_block.js";
import { element } from "../element.js";
import { SUBSCRIPTIONS_LISTEN, TOOLS_CALL } from "../mcp_methods.js";
import { toast } from "../toast.js";
import { FORMS } from "./copy_as.js";
import { diffLines, diffTools, stableText } from "./diff.js";
import { diffView } from "./diff_view.js";
import { pinnedTab } from "./pinned_tabs.js";
import { isOpen, titleOf } from "./rows.js";
import { resendTrial } from "./trials.js";
import { tryForm } from "./try_form.js";

/**
 * @typedef {import("./relay_api.js").Detail} Detail
 *
 * @typedef {object} ActionContext
 * @property {() => string} tokenCommand
 * @property {(server: string) => string} url
 * @property {(server: string) => { id: string, title: string }[]} tabs
 * @property {import("./call_runner.js").CallRunner | null} runner null: nothing can be sent, as with a session file
 * @property {(id: string) => void} open
 * @property {(id: string) => Promise<void>} cancel
 */

/** The call that others are compared with. @type {Detail | null} */
let marked = null;

/**
 * @param {Detail} detail
 * @param {HTMLElement} place
 * @param {ActionContext} context
 * @returns {HTMLElement[]}
 */
export function callActions(detail, place, context) {
  const { row } = detail;
  const show = (/** @type {HTMLElement[]} */ ...content) => {
    place.hidden = content.length === 0;
    place.replaceChildren(...content);
  };
  const { runner } = context;
  /** @type {HTMLElement[]} */
  const buttons = [copyMenu(detail, context, show)];
  if (runner && row.method !== SUBSCRIPTIONS_LISTEN) {
    buttons.push(button("Resend", () => void resend(detail, runner, context)));
    buttons.push(button("Edit and resend", () => void edit(detail, runner, context, show)));
  }
  if (runner && row.by === "console" && isOpen(row)) buttons.push(button("Cancel", () => void context.cancel(row.id)));
  buttons.push(button("Compare", () => compare(detail, show)));
  return buttons;
}

/** @param {string} label @param {() => void} run */
function button(label, run) {
  const made = element("button", { type: "button", class: "button is-small" }, label);
  made.addEventListener("click", run);
  return made;
}

/**
 * @param {Detail} detail
 * @param {ActionContext} context
 * @param {(...content: HTMLElement[]) => void} show
 */
function copyMenu(detail, { tokenCommand, url }, show) {
  const select = element("select", { class: "button is-small", "aria-label": "Copy as" }, element("option", { value: "" }, "Copy as …"), ...FORMS.map(({ id, label }) => element("option", { value: id }, label)), element("option", { value: "json" }, "JSON"));
  select.addEventListener("change", async () => {
    const form = FORMS.find(({ id }) => id === select.value);
    const { row, request, response, truncated } = detail;
    if (form && truncated && truncated.request) {
      select.value = "";
      return show(element("p", { class: "hint", role: "status" }, "The request was too long to be captured whole, so only its JSON can be copied."));
    }
    const call = { server: row.server, url: url(row.server), method: row.method, params: request.params ?? {}, tokenCommand: tokenCommand(), expected: response?.result, code: response?.error?.code };
    const text = form ? form.make(call) : JSON.stringify(detail, null, 2);
    const block = codeBlock(text, form?.language ?? "json");
    block.dataset.testid = "copied";
    show(block);
    if (await copyText(text, block)) toast(`Copied as ${form?.label ?? "JSON"}.`);
    select.value = "";
  });
  return select;
}

/**
 * @param {Detail} detail
 * @param {import("./call_runner.js").CallRunner} runner
 * @param {ActionContext} context
 */
async function resend({ row }, runner, { open }) {
  try {
    const tab = row.method === TOOLS_CALL ? pinnedTab(row.server) : "";
    const again = await runner.run({ of: row.id, ...(tab ? { tab } : {}) }, { onStart: open });
    if (again.response?.result?.resultType === "input_required") toast("The server asks. Use “Edit and resend” to answer.");
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error));
  }
}

/**
 * @param {Detail} detail
 * @param {import("./call_runner.js").CallRunner} runner
 * @param {ActionContext} context
 * @param {(...content: HTMLElement[]) => void} show
 */
async function edit(detail, runner, { tabs, open }, show) {
  const { row } = detail;
  const tools = row.method === TOOLS_CALL ? await runner.list(row.server, "tools").catch(() => []) : [];
  const schema = tools.find(({ name }) => name === row.name)?.inputSchema;
  show(tryForm(resendTrial(detail, schema, tabs(row.server)), { runner, open }));
}

/** @param {Detail} detail @param {(...content: HTMLElement[]) => void} show */
function compare(detail, show) {
  if (!marked || marked.row.id === detail.row.id) {
    marked = detail;
    return show(element("p", { class: "hint", role: "status" }, "Marked. Open another call and press Compare to see the differences."));
  }
  const before = marked;
  const clear = button("Unmark", () => {
    marked = null;
    show();
  });
  const title = `${titleOf(before.row)} (${before.row.id}) → ${titleOf(detail.row)} (${detail.row.id})`;
  show(element("div", { class: "stack is-close", "data-testid": "comparison" }, element("div", { class: "row" }, element("p", { class: "hint" }, title), clear), ...comparison(before, detail)));
}

/** @param {Detail} before @param {Detail} after @returns {HTMLElement[]} */
function comparison(before, after) {
  const [old, now] = [before, after].map(({ response }) => response?.result?.tools);
  if (Array.isArray(old) && Array.isArray(now)) {
    const found = diffTools(old, now);
    if (!found.length) return [element("p", { class: "hint" }, "The lists of tools are equal.")];
    return found.map(({ name, kind, lines }) => element("details", { open: true }, element("summary", {}, `${name}: ${kind}`), diffView(lines, `Difference of ${name}`)));
  }
  const parts = /** @type {[string, (detail: Detail) => unknown][]} */ ([
    ["Request", ({ request }) => request.params],
    ["Result", ({ response }) => response],
  ]);
  return parts.flatMap(([label, of]) => [element("h3", {}, label), diffView(diffLines(stableText(of(before) ?? null), stableText(of(after) ?? null)), `Difference of the ${label.toLowerCase()}`)]);
}
