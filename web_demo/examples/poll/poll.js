/**
 * Example of an app, a tool that runs as a task, a skill and hints: a poll that clients with MCP Apps show in the conversation.
 * The page of the app is view.html.
 */

import { connect } from "/-/client.js";
import { showExample } from "../example_page.js";

const STEP_MS = 300;
/** @type {Map<string, number>} */
const votes = new Map([["Noodles", 2], ["Pizza", 1], ["Salad", 0]]);
const list = /** @type {HTMLElement} */ (document.querySelector("#options"));
const audit = /** @type {HTMLElement} */ (document.querySelector("#audit"));
const connection = connect({ server: "poll", title: "Lunch poll", instructions: "Read the skill run-a-poll before you close or audit a poll." });

// -- the app itself, for people and agents ----------------------------------------------------------------------------

/** @param {string} option */
function vote(option) {
  const count = votes.get(option);
  if (count === undefined) throw new Error(`There is no option “${option}”. The options are ${[...votes.keys()].join(", ")}.`);
  votes.set(option, count + 1);
  changed();
}

function changed() {
  connection.resourceUpdated("poll://state");
  draw();
}

const state = () => ({ options: [...votes].map(([name, count]) => ({ name, count })) });
const winner = () => [...votes].reduce((best, one) => (one[1] > best[1] ? one : best))[0];

// -- for agents -------------------------------------------------------------------------------------------------------

connection.offerResource({ uri: "poll://state", name: "The poll", mimeType: "application/json", read: state });

connection.offerApp({
  name: "show_poll",
  title: "Lunch poll",
  description: "Show the poll to the user, who can vote in it.",
  url: new URL("view.html", import.meta.url),
  live: ["poll://state"],
  prefersBorder: true,
  tool: {
    annotations: { readOnlyHint: true },
    hints: { search: "lunch vote survey", alwaysLoad: true },
    execute: () => [...votes].map(([name, count]) => `${name}: ${count}`).join("\n"),
  },
});

connection.offerTool({
  name: "cast_vote",
  description: "Vote for an option.",
  visibility: ["app"],
  inputSchema: { type: "object", properties: { option: { type: "string" } }, required: ["option"], additionalProperties: false },
  execute: ({ option }) => vote(option),
});

connection.offerTool({
  name: "add_option",
  description: "Add an option to the poll.",
  inputSchema: {
    type: "object",
    properties: { name: { type: "string", minLength: 1, maxLength: 40 } },
    required: ["name"],
    additionalProperties: false,
  },
  execute({ name }) {
    if (!votes.has(name)) votes.set(name, 0);
    changed();
    return state();
  },
});

connection.offerTool({
  name: "audit_poll",
  description: "Count all ballots again, one by one, and name the winner. This takes a while.",
  task: "optional",
  annotations: { readOnlyHint: true },
  async execute(_, { progress, signal }) {
    const ballots = [...votes].flatMap(([name, count]) => Array(count).fill(name));
    for (const [at] of ballots.entries()) {
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
      if (signal.aborted) throw signal.reason;
      audit.textContent = `Counted ${at + 1} of ${ballots.length} ballots.`;
      progress(at + 1, ballots.length, "counting");
    }
    return `${ballots.length} ballots. ${winner()} wins.`;
  },
});

void connection.offerSkill({
  name: "run-a-poll",
  description: "How to run, audit and close a poll of this page. Use it before you announce a winner.",
  files: {
    "SKILL.md": "# Run a poll\n\n1. show_poll shows it to the user.\n2. audit_poll counts again.\n3. Announce the winner by references/TIES.md.\n",
    "references/TIES.md": "# Ties\n\nWith a tie, add_option proposes a compromise, and all vote again.\n",
  },
});

// -- for people -------------------------------------------------------------------------------------------------------

function draw() {
  list.replaceChildren(...[...votes].map(([name, count]) => {
    const row = Object.assign(document.createElement("li"), { className: "row" });
    const button = Object.assign(document.createElement("button"), { className: "button is-quiet", textContent: "Vote" });
    button.ariaLabel = `Vote for ${name}`;
    button.addEventListener("click", () => vote(name));
    row.append(Object.assign(document.createElement("span"), { className: "grow", textContent: `${name}: ${count}` }), button);
    return row;
  }));
}

draw();

showExample(connection, {
  server: "poll",
  files: [["poll.js", "the tools, the app and the skill"], ["view.html", "the page of the app"], ["index.html", "this page"]],
  example: { tool: "show_poll", arguments: {}, prompt: "Show the lunch poll, then audit it." },
  values: { add_option: { name: "Curry" } },
});
