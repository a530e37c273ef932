/**
 * Parts that every example's page has beside its app: its tools with *Run*, *Connect a client*, and links to its source.
 *
 * An app of your own needs none of this: its tools, and perhaps `<tabrelay-status>` in its header. *Run* calls the tools through the
 * relay, as other clients do.
 *
 * @import { Connection } from "/-/client.js"
 */

import { askRelay } from "/-/client/redeem_code.js";
import { clientPanel } from "/-/page/clients.js";
import { byId, element } from "/-/page/element.js";
import { ToolPanel } from "/-/page/tool_panel.js";
import "/-/page/site.js";
import "/-/status.js";

const ANSWER_MS = 5_000;

/**
 * @typedef {object} Example
 * @property {string} server
 * @property {[file: string, about: string][]} files its source
 * @property {{ tool: string, arguments: Record<string, unknown>, prompt: string }} example one call, and what a person would write
 * @property {Record<string, Record<string, unknown>>} [values] arguments that are filled in, by the names of the tools
 */

/**
 * @param {Connection} connection
 * @param {Example} about
 */
export function showExample(connection, { server, files, example, values }) {
  const tools = element("div", { id: "tools", class: "stack" });
  const recipes = element("div", { id: "recipes" });
  const source = files.map(([file, text]) => element("li", {}, element("a", { href: file, class: "mono" }, file), ` ${text}`));
  const toolSection = section(
    "Tools",
    element("p", { class: "hint" }, "Run makes a real call: from here to the relay, and back to this page through its worker, as every client's call."),
    tools,
  );
  const side = element(
    "div",
    { class: "stack" },
    section("Connect a client", recipes),
    section("Source", element("ul", { class: "source" }, ...source)),
  );
  byId("main", HTMLElement).append(element("div", { class: "parts" }, toolSection, side));
  new ToolPanel(tools, connection, { server, client: `page of the example “${server}”`, values: values ?? {} });
  showRecipes(recipes, connection, server, example);
}

/**
 * @param {string} title
 * @param {...HTMLElement} children
 */
function section(title, ...children) {
  const heading = element("h2", { id: `${title.toLowerCase().replaceAll(" ", "-")}-title` }, title);
  return element("section", { class: "card stack", "aria-labelledby": heading.id }, heading, ...children);
}

/**
 * The recipes of all of Tabrelay's pages. The relay names the command that prints its token when this page is connected.
 *
 * @param {HTMLElement} place
 * @param {Connection} connection
 * @param {string} server
 * @param {Example["example"]} example
 */
function showRecipes(place, connection, server, example) {
  const panel = clientPanel(place, "Client");
  const target = { name: server, url: `${location.origin}/${server}`, tokenCommand: "tabrelay token", example };
  panel.update(target);
  let isKnown = false;
  const update = async () => {
    if (isKnown || connection.state.state !== "connected") return;
    isKnown = true;
    try {
      const answer = await askRelay("/-/status", { signal: AbortSignal.timeout(ANSWER_MS) });
      const { token_command: tokenCommand } = await answer.json();
      if (tokenCommand) panel.update({ ...target, tokenCommand });
    } catch {
      isKnown = false; // until then, the usual command is shown
    }
  };
  connection.addEventListener("state", () => void update());
  void update();
}
