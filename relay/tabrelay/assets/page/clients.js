/**
 * Set-up instructions for MCP clients: the recipes as data, and the panel that shows them.
 *
 * No recipe contains a secret. Each names the command that prints the token, or a variable that contains it, so a page can be
 * shown, shared and recorded.
 */

import { codeBlock } from "./code_block.js";
import { element } from "./element.js";
import { TOOLS_CALL, TOOLS_LIST } from "./mcp_methods.js";

const VERSION = "2026-07-28";
const DEFAULT_PORT = "4747";

/**
 * @typedef {{ label: string, href: string }} OneClickLink
 * @typedef {{ text: string, code?: string, link?: OneClickLink | undefined }} Step
 * @typedef {{ id: string, label: string, steps: Step[] }} Recipe
 * @typedef {{ tool: string, arguments: Record<string, unknown>, prompt: string }} Example
 * @typedef {{ name: string, url: string, tokenCommand: string, example?: Example }} Target
 */

const CLIENTS = /** @type {const} */ ([
  ["claude-code", "Claude Code"],
  ["cursor", "Cursor"],
  ["vscode", "VS Code"],
  ["others", "Others"],
  ["curl", "curl"],
]);

/**
 * One recipe per client, in the order of `CLIENTS`.
 *
 * @param {Target} target
 * @returns {Recipe[]}
 */
export function recipes(target) {
  const ask = target.example ? [{ text: `Then ask it, for example: “${target.example.prompt}”` }] : [];
  const steps = {
    "claude-code": [...claudeCode(target), ...ask],
    cursor: [...cursor(target), ...ask],
    vscode: [...vscode(target), ...ask],
    others: [...others(target), ...ask],
    curl: curl(target),
  };
  return CLIENTS.map(([id, label]) => ({ id, label, steps: steps[id] }));
}

/**
 * Another command of the program that prints the token, with the same flags: `tabrelay token --home X` becomes
 * `tabrelay pair --home X`.
 *
 * @param {string} tokenCommand
 * @param {string} verb
 * @returns {string}
 */
export function sibling(tokenCommand, verb) {
  return tokenCommand.replace(/ token(?= |$)/, ` ${verb}`);
}

/**
 * The command that starts a relay at this page's address.
 *
 * @param {string} tokenCommand
 * @param {"demo" | "serve"} verb
 * @param {string} origin
 */
export function startCommand(tokenCommand, verb, origin) {
  const { port } = new URL(origin);
  return sibling(tokenCommand, verb) + (port === "" || port === DEFAULT_PORT ? "" : ` --port ${port}`);
}

/**
 * Links that add the server to Cursor and VS Code, which ask before they do. The client starts the stdio bridge, and that reads the
 * token, so no link contains a secret.
 *
 * @param {Pick<Target, "name" | "tokenCommand">} target
 * @returns {{ cursor: OneClickLink, vscode: OneClickLink }}
 */
export function oneClickLinks({ name, tokenCommand }) {
  const [command = "", ...args] = shellWords(sibling(tokenCommand, `stdio ${name}`));
  const config = btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify({ command, args }))));
  const query = `name=${encodeURIComponent(name)}&config=${encodeURIComponent(config)}`;
  const entry = encodeURIComponent(JSON.stringify({ name, type: "stdio", command, args }));
  return {
    cursor: { label: "Add to Cursor", href: `cursor://anysphere.cursor-deeplink/mcp/install?${query}` },
    vscode: { label: "Add to VS Code", href: `vscode:mcp/install?${entry}` },
  };
}

/**
 * The line that adds the server to a client.
 *
 * @param {Pick<Target, "name" | "tokenCommand">} target
 * @param {string} client as `tabrelay install` lists it
 */
export function installCommand({ name, tokenCommand }, client) {
  return sibling(tokenCommand, `install ${client} ${name}`);
}

/** The words of a command as Python's shlex writes it. @param {string} command */
function shellWords(command) {
  const words = command.match(/(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+/g) ?? [];
  return words.map((word) => word.replace(/'([^']*)'|"([^"]*)"|\\(.)/g, (_, single, double, escaped) => single ?? double ?? escaped));
}

/** @param {Target} target @returns {Step[]} */
function claudeCode({ name, url, tokenCommand }) {
  const header = `"Authorization: Bearer $(${tokenCommand})"`;
  return [
    { text: "Run this in a terminal.", code: installCommand({ name, tokenCommand }, "claude-code") },
    { text: "Or use Claude Code’s own command.", code: `claude mcp add --transport http ${name} ${url} --header ${header}` },
  ];
}

/** @param {Target} target @returns {Step[]} */
function cursor({ name, url, tokenCommand }) {
  const headers = { Authorization: "Bearer ${env:TABRELAY_TOKEN}" };
  return [
    { text: "Cursor asks before it adds the server.", link: oneClickLinks({ name, tokenCommand }).cursor },
    { text: "Or add this to ~/.cursor/mcp.json.", code: json({ mcpServers: { [name]: { url, headers } } }) },
    {
      text: "Cursor reads the token from its environment, so start it like this.",
      code: `TABRELAY_TOKEN="$(${tokenCommand})" cursor .`,
    },
  ];
}

/** @param {Target} target @returns {Step[]} */
function vscode({ name, url, tokenCommand }) {
  const headers = { Authorization: "Bearer ${input:tabrelay-token}" };
  const input = { type: "promptString", id: "tabrelay-token", description: "Tabrelay token", password: true };
  return [
    { text: "VS Code asks before it adds the server.", link: oneClickLinks({ name, tokenCommand }).vscode },
    {
      text: "Or add this to .vscode/mcp.json.",
      code: json({ servers: { [name]: { type: "http", url, headers } }, inputs: [input] }),
    },
    { text: "VS Code asks for the token once and keeps it safe. This prints it.", code: tokenCommand },
  ];
}

/** @param {Target} target @returns {Step[]} */
function others(target) {
  const names = "claude-desktop, codex, gemini, zed, windsurf, opencode, cline and others";
  const text = `One line, for ${names}. It writes the server into the client’s configuration and keeps a copy of the file.`;
  return [{ text, code: installCommand(target, "claude-desktop") }];
}

/** @param {Target} target @returns {Step[]} */
function curl({ url, tokenCommand, example }) {
  const method = example ? TOOLS_CALL : TOOLS_LIST;
  const meta = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const what = example ? { name: example.tool, arguments: example.arguments } : {};
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...what, _meta: meta } });
  const lines = [
    `curl ${url}`,
    `  -H "Authorization: Bearer $(${tokenCommand})"`,
    `  -H "Content-Type: application/json"`,
    `  -H "Accept: application/json, text/event-stream"`,
    `  -H "MCP-Protocol-Version: ${VERSION}"`,
    `  -H "Mcp-Method: ${method}"`,
    ...(example ? [`  -H "Mcp-Name: ${example.tool}"`] : []),
    `  -d '${body.replaceAll("'", "'\\''")}'`,
  ];
  const text = example ? `One call of ${example.tool}, without any client.` : "The list of tools, without any client.";
  return [{ text, code: lines.join(" \\\n") }];
}

/** @param {unknown} value @returns {string} */
function json(value) {
  return JSON.stringify(value, null, 2);
}

/**
 * A row of tabs, one per client, above the steps of the selected one. `update` draws only what changed, and keeps the selection.
 *
 * @param {HTMLElement} host
 * @param {string} label the accessible name of the row of tabs
 * @returns {{ update(target: Target): void }}
 */
export function clientPanel(host, label) {
  const key = host.id || `panel-${crypto.randomUUID()}`;
  const body = element("div", { class: "recipe", role: "tabpanel", id: `${key}-recipe` });
  const strip = element("div", { class: "tabs", role: "tablist", "aria-label": label });
  const tabs = CLIENTS.map(([id, name]) => {
    const attributes = { type: "button", role: "tab", id: `${key}-${id}`, "data-client": id, "aria-controls": body.id };
    return element("button", attributes, name);
  });
  strip.append(...tabs);
  host.replaceChildren(strip, body);

  /** @type {Target | null} */
  let target = null;
  let chosen = 0;

  function draw() {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", index === chosen ? "true" : "false");
      tab.tabIndex = index === chosen ? 0 : -1;
    });
    body.setAttribute("aria-labelledby", tabs[chosen]?.id ?? "");
    const steps = target ? (recipes(target)[chosen]?.steps ?? []) : [];
    body.replaceChildren(...steps.flatMap(stepNodes));
  }

  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => {
      chosen = index;
      draw();
    });
  });
  strip.addEventListener("keydown", (event) => {
    const last = tabs.length - 1;
    const next = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    chosen = next < 0 ? last : next > last ? 0 : next;
    draw();
    tabs[chosen]?.focus();
  });

  return {
    update(next) {
      if (JSON.stringify(next) === JSON.stringify(target)) return;
      target = next;
      draw();
    },
  };
}

/** @param {Step} step @returns {HTMLElement[]} */
function stepNodes({ text, code, link }) {
  const paragraph = element("p", {}, text);
  if (link) return [paragraph, element("p", {}, element("a", { class: "button", href: link.href }, link.label))];
  if (code === undefined) return [paragraph];
  return [paragraph, codeBlock(code, code.startsWith("{") ? "json" : "shell")];
}

/**
 * A command with a button that copies it.
 *
 * @param {string} text
 * @returns {HTMLElement}
 */
export function command(text) {
  return codeBlock(text, "shell");
}
