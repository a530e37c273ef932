/**
 * How to connect a client to a server: links that open VS Code and Cursor, the command for other clients, and the steps by hand.
 *
 * No text contains a secret: clients read the token themselves, or a command prints it.
 */

import { clientPanel, command, installCommand, oneClickLinks } from "../clients.js";
import { element } from "../element.js";

/** As `tabrelay install` lists them. @type {[id: string, label: string][]} */
const INSTALLED = [
  ["claude-code", "Claude Code"],
  ["claude-desktop", "Claude Desktop"],
  ["codex", "Codex"],
  ["gemini", "Gemini CLI"],
  ["zed", "Zed"],
  ["windsurf", "Windsurf"],
  ["opencode", "OpenCode"],
  ["cline", "Cline"],
  ["vscode", "VS Code"],
  ["cursor", "Cursor"],
];

/** @param {import("../clients.js").Target} target */
export function connectPart(target) {
  const links = oneClickLinks(target);
  const buttons = [links.vscode, links.cursor].map(({ label, href }) => element("a", { class: "button is-primary", href }, label));
  const select = element("select", { "aria-label": "Client" }, ...INSTALLED.map(([id, label]) => element("option", { value: id }, label)));
  const line = element("div");
  const draw = () => line.replaceChildren(command(installCommand(target, select.value)));
  select.addEventListener("change", draw);
  draw();
  const host = element("div", { id: `connect-${target.name}` });
  clientPanel(host, `MCP clients for ${target.name}`).update(target);
  return element(
    "div",
    { class: "stack", "data-testid": "connect" },
    element("div", { class: "row" }, ...buttons),
    element("label", { class: "field" }, element("span", {}, "Other clients: one command"), select),
    line,
    element("details", {}, element("summary", {}, "By hand"), host),
  );
}
