/**
 * Tasks of a server: calls that outlive their request, with state, age and client. Of all of its browsers, the newest first.
 *
 * The status of the relay has them, without their texts and results, which belong to their clients.
 */

import { duration, element } from "../element.js";

/**
 * @typedef {import("./server_texts.js").Server} Server
 * @typedef {import("./server_texts.js").Task} Task
 */

/** The design's class for a state. @type {Record<string, string>} */
const LOOKS = { completed: "is-ok", failed: "is-bad", input_required: "is-warn" };

/** @param {Server} first @param {EventTarget} updates */
export function tasksPart(first, updates) {
  const none = element("p", { class: "empty" }, "There are no tasks. A tool with “task” makes one of a call that takes long.");
  const body = element("tbody");
  const heads = ["Tool", "State", "Started", "Changed", "Kept for", "Token", "Id"].map((text) => element("th", { scope: "col" }, text));
  const frame = element("div", { class: "table", tabindex: 0, role: "group", "aria-label": "Tasks" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  const draw = (/** @type {Server} */ server) => {
    const tasks = tasksOf(server);
    none.hidden = tasks.length > 0;
    frame.hidden = tasks.length === 0;
    body.replaceChildren(...tasks.map(taskRow));
  };
  updates.addEventListener("update", (event) => draw(/** @type {CustomEvent<Server>} */ (event).detail));
  draw(first);
  return element("div", {}, none, frame);
}

/** @param {Server} server @returns {Task[]} */
function tasksOf({ tasks, instances }) {
  const all = [...(tasks ?? []), ...(instances ?? []).flatMap((each) => each.tasks ?? [])];
  return all.sort((one, other) => one.age_s - other.age_s);
}

/** @param {Task} task */
function taskRow({ id, tool, status, age_s, changed_s, expires_in_s, principal }) {
  const badge = element("span", { class: `badge ${LOOKS[status] ?? ""}` }, status.replaceAll("_", " "));
  const time = (/** @type {number} */ s) => element("td", {}, duration(Math.max(0, s) * 1000));
  const ago = (/** @type {number} */ s) => element("td", {}, `${duration(Math.max(0, s) * 1000)} ago`);
  return element(
    "tr",
    { "data-task": id, "data-status": status },
    element("td", {}, tool),
    element("td", {}, badge),
    ago(age_s),
    ago(changed_s),
    time(expires_in_s),
    element("td", {}, principal),
    element("td", { class: "mono" }, id),
  );
}
