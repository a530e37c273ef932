/** Example of a page with four tools and a resource in JavaScript: a to-do list that its user and an agent share. */

import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

/** @typedef {{ id: number, text: string, done: boolean }} Todo */

/** @type {Todo[]} */
let todos = JSON.parse(localStorage.getItem("todos") ?? "null") ?? [
  { id: 1, text: "Open this page beside your agent", done: true },
  { id: 2, text: "Ask it what is left to do", done: false },
];

const list = /** @type {HTMLElement} */ (document.querySelector("#list"));
const form = /** @type {HTMLFormElement} */ (document.querySelector("#new"));
const connection = connect({ server: "todo", title: "To-do list", instructions: "Call list_todos first: the other tools need the ids." });
/** The to-do that an agent has changed last, which the page marks. @type {number | undefined} */
let changedByAgent;

// -- the app itself, for people and agents ----------------------------------------------------------------------------

/**
 * @param {Todo[]} changed
 * @param {number} [byAgent] the id of what an agent has changed
 */
function save(changed, byAgent) {
  todos = changed;
  changedByAgent = byAgent;
  localStorage.setItem("todos", JSON.stringify(todos));
  connection.resourceUpdated("todo://list");
  draw();
}

/**
 * @param {string} text
 * @param {boolean} [isAgent]
 */
function add(text, isAgent = false) {
  const todo = { id: Math.max(0, ...todos.map(({ id }) => id)) + 1, text, done: false };
  save([...todos, todo], isAgent ? todo.id : undefined);
  return todo;
}

/** @param {number} id */
function find(id) {
  const todo = todos.find((one) => one.id === id);
  if (!todo) throw new Error(`There is no to-do ${id}. Call list_todos for the ids.`);
  return todo;
}

// -- for agents -------------------------------------------------------------------------------------------------------

const byId = { type: "object", properties: { id: { type: "integer" } }, required: ["id"], additionalProperties: false };

connection.offerTool({
  name: "list_todos",
  description: "Everything on the list, with ids.",
  inputSchema: { type: "object", properties: { only_open: { type: "boolean", default: false } } },
  annotations: { readOnlyHint: true },
  execute: ({ only_open }) => ({ todos: todos.filter(({ done }) => !only_open || !done) }),
});

connection.offerTool({
  name: "add_todo",
  description: "Add something to the list.",
  inputSchema: {
    type: "object",
    properties: { text: { type: "string", minLength: 1, maxLength: 200 } },
    required: ["text"],
    additionalProperties: false,
  },
  execute: ({ text }) => add(text, true),
});

connection.offerTool({
  name: "finish_todo",
  description: "Mark a to-do as done.",
  inputSchema: byId,
  annotations: { idempotentHint: true },
  execute({ id }) {
    find(id).done = true;
    save(todos, id);
    return find(id);
  },
});

connection.offerTool({
  name: "remove_todo",
  description: "Take a to-do off the list.",
  inputSchema: byId,
  annotations: { destructiveHint: true },
  execute({ id }) {
    const { text } = find(id);
    save(todos.filter((todo) => todo.id !== id));
    return `Removed “${text}”.`;
  },
});

connection.offerResource({
  uri: "todo://list",
  name: "The to-do list",
  mimeType: "text/markdown",
  read: () => todos.map(({ text, done }) => `- [${done ? "x" : " "}] ${text}`).join("\n"),
});

// -- for people -------------------------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  event.preventDefault();
  add(String(new FormData(form).get("text")));
  form.reset();
});

// Another tab has changed the list.
addEventListener("storage", ({ key, newValue }) => {
  if (key !== "todos") return;
  todos = JSON.parse(newValue ?? "[]");
  changedByAgent = undefined;
  draw();
});

function draw() {
  /** @type {HTMLElement} */ (document.querySelector("#none")).hidden = todos.length > 0;
  list.replaceChildren(...todos.map((todo) => {
    const row = document.createElement("li");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: todo.done });
    const remove = Object.assign(document.createElement("button"), { className: "button is-quiet", textContent: "Remove" });
    remove.ariaLabel = `Remove “${todo.text}”`;
    const label = document.createElement("label");
    label.append(box, todo.text);
    row.classList.toggle("done", todo.done);
    row.classList.toggle("is-new", todo.id === changedByAgent);
    row.append(label, remove);
    box.onchange = () => {
      todo.done = box.checked;
      save(todos);
    };
    remove.onclick = () => save(todos.filter((one) => one !== todo));
    return row;
  }));
}

draw();
showExample(connection, {
  server: "todo",
  files: [["todo.js", "the app, four tools and a resource"], ["index.html", "its page"]],
  example: { tool: "list_todos", arguments: {}, prompt: "What is left to do? Add watering the plants." },
  values: { add_todo: { text: "Water the plants" }, finish_todo: { id: 2 }, remove_todo: { id: 1 } },
});
