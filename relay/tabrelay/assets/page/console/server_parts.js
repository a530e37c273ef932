/**
 * Parts of a server's drawer: tools, resources, prompts, tabs, tasks, clients, and what a model sees.
 *
 * Lists with schemas are read from the server when a part is opened, as a call of the console; tools are read again when their names
 * change. Without an answer, the names of the relay's status stay.
 */

import { element } from "../element.js";
import { appButton } from "./app_part.js";
import { clientsPart } from "./clients_part.js";
import { modelPart } from "./model_part.js";
import { pinnedTab, pinTab } from "./pinned_tabs.js";
import { tasksPart } from "./tasks_part.js";
import { promptTrial, resourceTrial, templateTrial, toolTrial } from "./trials.js";
import { drawTools } from "./tool_list.js";
import { tryForm } from "./try_form.js";

/**
 * @typedef {import("./server_texts.js").Server} Server
 * @typedef {import("./tab_strip.js").Part} Part
 * @typedef {import("./trials.js").Trial} Trial
 *
 * @typedef {object} PartContext
 * @property {import("./call_runner.js").CallRunner} runner
 * @property {import("./call_store.js").CallStore} store
 * @property {(id: string) => void} open a call
 * @property {(filter: string) => void} filter
 */

/**
 * @param {Server} server
 * @param {EventTarget} updates
 * @param {PartContext} context
 * @returns {Part[]}
 */
export function serverParts(server, updates, context) {
  return [
    { id: "tools", label: "Tools", make: () => toolsPart(server, updates, context) },
    { id: "resources", label: "Resources", make: () => resourcesPart(server, context) },
    { id: "prompts", label: "Prompts", make: () => promptsPart(server, context) },
    { id: "tabs", label: "Tabs", make: () => tabsPart(server, updates, context) },
    { id: "tasks", label: "Tasks", make: () => tasksPart(server, updates) },
    { id: "clients", label: "Clients", make: () => clientsPart(server, updates, context) },
    { id: "model", label: "Model’s view", make: () => modelPart(server, context) },
  ];
}

/** Tabs of a server, in all of its browsers. @param {Server} server */
function tabsOf({ tabs, instances }) {
  return [...(tabs ?? []), ...(instances ?? []).flatMap((each) => each.tabs)];
}

/** A button that opens a form below its entry. @param {() => Trial} trial @param {PartContext} context @param {() => HTMLElement | null} place */
function tryButton(trial, context, place) {
  const button = element("button", { type: "button", class: "button is-small", "aria-expanded": "false" }, "Try");
  /** @type {HTMLElement | null} */
  let form = null;
  button.addEventListener("click", () => {
    if (!form) {
      form = tryForm(trial(), context);
      form.hidden = true;
      place()?.append(form);
    }
    form.hidden = !form.hidden;
    button.setAttribute("aria-expanded", String(!form.hidden));
    if (!form.hidden) form.querySelector("input, textarea, select, button")?.scrollIntoView({ block: "nearest" });
  });
  return button;
}

/** @param {Server} first @param {EventTarget} updates @param {PartContext} context */
function toolsPart(first, updates, context) {
  const list = element("div", { class: "stack is-close" });
  const problem = element("p", { class: "hint", role: "status" });
  let drawn = "";
  let now = first;
  const draw = (/** @type {import("./tool_list.js").Tool[]} */ tools) =>
    drawTools(list, tools, (tool) => {
      const place = () => /** @type {HTMLElement | null} */ (list.querySelector(`[data-tool="${CSS.escape(tool.name)}"]`));
      return [tryButton(() => toolTrial(first.name, tool, tabsOf(now)), context, place), appButton(first.name, tool, place)];
    });
  const update = async (/** @type {Server} */ server) => {
    now = server;
    const text = JSON.stringify([server.state !== "offline", server.tools]);
    if (text === drawn) return;
    drawn = text;
    draw(server.tools);
    if (!server.tools.length) return;
    problem.textContent = "";
    try {
      const tools = await context.runner.list(first.name, "tools");
      if (text === drawn) draw(/** @type {import("./tool_list.js").Tool[]} */ (tools));
    } catch (error) {
      problem.textContent = `Schemas could not be read: ${error instanceof Error ? error.message : error}`;
    }
  };
  updates.addEventListener("update", (event) => void update(/** @type {CustomEvent<Server>} */ (event).detail));
  void update(first);
  return element("div", { class: "stack is-close" }, problem, list);
}

/**
 * A list that is read once, with a button that reads it again.
 *
 * @param {string} none what is said of an empty list
 * @param {() => Promise<HTMLElement[]>} read
 */
function listPart(none, read) {
  const status = element("p", { class: "hint", role: "status" }, "Reading.");
  const list = element("ul", { class: "list" });
  const again = element("button", { type: "button", class: "button is-small" }, "Read again");
  const load = async () => {
    try {
      const items = await read();
      status.textContent = items.length ? "" : none;
      list.replaceChildren(...items);
    } catch (error) {
      status.textContent = error instanceof Error ? error.message : String(error);
    }
  };
  again.addEventListener("click", () => void load());
  void load();
  return element("div", { class: "stack is-close" }, status, list, element("div", { class: "row" }, again));
}

/**
 * @param {Record<string, any>} entry
 * @param {string} address
 * @param {() => Trial} trial
 * @param {PartContext} context
 */
function entryItem(entry, address, trial, context) {
  /** @type {HTMLElement} */
  const item = element("li", { "data-entry": String(entry.name) });
  const about = [entry.title && entry.title !== entry.name ? entry.title : "", entry.mimeType ?? ""].filter(Boolean).join(" · ");
  item.append(
    element("div", { class: "row" }, element("p", { class: "name" }, String(entry.name)), about ? element("span", { class: "hint" }, about) : null, tryButton(trial, context, () => item)),
    ...(address && address !== entry.name ? [element("p", { class: "about mono" }, address)] : []),
    ...(entry.description ? [element("p", { class: "about" }, String(entry.description))] : []),
  );
  return item;
}

/** @param {Server} server @param {PartContext} context */
function resourcesPart({ name }, context) {
  return listPart("This server offers no resources.", async () => {
    const resources = await context.runner.list(name, "resources");
    const templates = await context.runner.list(name, "resourceTemplates");
    return [
      ...resources.map((each) => entryItem(each, String(each.uri), () => resourceTrial(name, String(each.uri)), context)),
      ...templates.map((each) => entryItem(each, String(each.uriTemplate), () => templateTrial(name, String(each.uriTemplate)), context)),
    ];
  });
}

/** @param {Server} server @param {PartContext} context */
function promptsPart({ name }, context) {
  return listPart("This server offers no prompts.", async () => {
    const prompts = await context.runner.list(name, "prompts");
    return prompts.map((each) => entryItem(each, "", () => promptTrial(name, each), context));
  });
}

/** @param {Server} first @param {EventTarget} updates @param {PartContext} context */
function tabsPart(first, updates, context) {
  const list = element("ul", { class: "list" });
  const none = element("p", { class: "empty" }, "No tab is open.");
  let drawn = "";
  const draw = (/** @type {Server} */ server) => {
    const tabs = tabsOf(server);
    if (JSON.stringify(tabs) === drawn) return;
    drawn = JSON.stringify(tabs);
    none.hidden = tabs.length > 0;
    list.replaceChildren(...tabs.map((tab) => tabItem(first.name, tab, context)));
  };
  updates.addEventListener("update", (event) => draw(/** @type {CustomEvent<Server>} */ (event).detail));
  draw(first);
  return element("div", {}, none, list);
}

/** @param {string} server @param {import("../browsers.js").Tab & { url?: string }} tab @param {PartContext} context */
function tabItem(server, { id, title, visible, url }, context) {
  const show = element("button", { type: "button", class: "button is-small" }, "Show its calls");
  show.addEventListener("click", () => context.filter(`tab:${id}`));
  const isPinned = String(pinnedTab(server) === id);
  const pin = element("button", { type: "button", class: "button is-small", "data-pin": id, "aria-pressed": isPinned, title: "Calls of the console go to this tab" }, "Pin");
  pin.addEventListener("click", () => {
    pinTab(server, pinnedTab(server) === id ? "" : id);
    for (const each of pin.closest("ul")?.querySelectorAll("[data-pin]") ?? []) each.setAttribute("aria-pressed", String(each.getAttribute("data-pin") === pinnedTab(server)));
  });
  const isWeb = /^https?:\/\//u.test(url ?? "");
  const open = isWeb ? element("a", { class: "button is-small", href: url, target: "_blank", rel: "noreferrer noopener" }, "Open") : null;
  return element(
    "li",
    { "data-tab": id },
    element("div", { class: "row" }, element("p", { class: "name" }, title || "Untitled"), visible ? element("span", { class: "badge is-ok" }, "in view") : null, pin, show, open),
    element("p", { class: "about mono" }, [url ?? "", id].filter(Boolean).join(" · ")),
  );
}
