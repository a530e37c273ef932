/**
 * A captured call as a command or program: `tabrelay call`, curl, Python, TypeScript, and a pytest test.
 *
 * Pure functions. No text contains a token: commands read it by the command that prints it. Values that the relay has redacted stay
 * `[redacted]`. For a method that a program's client does not offer, the text names curl.
 */

import { sibling } from "../clients.js";
import {
  COMPLETION_COMPLETE,
  PROMPTS_GET,
  PROMPTS_LIST,
  RESOURCES_LIST,
  RESOURCES_READ,
  RESOURCES_TEMPLATES_LIST,
  TOOLS_CALL,
  TOOLS_LIST,
} from "../mcp_methods.js";

const VERSION = "2026-07-28";
const META = "io.modelcontextprotocol";

/**
 * @typedef {{ server: string, url: string, method: string, params: Record<string, any>, tokenCommand: string, expected?: unknown, code?: number | undefined }} CopiedCall
 *   `expected`: its result; `code`: that of its error
 * @typedef {{ id: string, label: string, language: import("../code_block.js").Language, make: (call: CopiedCall) => string }} Form
 */

/** @type {Form[]} */
export const FORMS = [
  { id: "tabrelay", label: "tabrelay call", language: "shell", make: tabrelayCall },
  { id: "curl", label: "curl", language: "shell", make: curl },
  { id: "python", label: "Python", language: "python", make: python },
  { id: "typescript", label: "TypeScript", language: "js", make: typescript },
  { id: "pytest", label: "pytest", language: "python", make: pytest },
];

/** Params without what the protocol adds. @param {Record<string, any>} params */
function bare(params) {
  const { _meta: _, inputResponses: __, requestState: ___, ...rest } = params;
  return rest;
}

/** For a POSIX shell. @param {string} text */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/u.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** @param {CopiedCall} call */
function tabrelayCall({ server, method, params, tokenCommand }) {
  const rest = bare(params);
  if (method !== TOOLS_CALL) return `# "tabrelay call" runs tools only; this is ${method}. Copy it as curl.`;
  const args = JSON.stringify(rest.arguments ?? {});
  return `${sibling(tokenCommand, "call")} ${quoted(server)} ${quoted(String(rest.name))}${args === "{}" ? "" : ` --args ${quoted(args)}`}`;
}

/** @param {CopiedCall} call */
function curl({ url, method, params, tokenCommand }) {
  const rest = bare(params);
  const meta = { [`${META}/protocolVersion`]: VERSION, [`${META}/clientCapabilities`]: {} };
  const name = rest.name ?? rest.uri;
  const lines = [
    `curl ${quoted(url)}`,
    `  -H "Authorization: Bearer $(${tokenCommand})"`,
    `  -H 'Content-Type: application/json'`,
    `  -H 'Accept: application/json, text/event-stream'`,
    `  -H 'MCP-Protocol-Version: ${VERSION}'`,
    `  -H 'Mcp-Method: ${method}'`,
    ...(name === undefined ? [] : [`  -H ${quoted(`Mcp-Name: ${headerText(String(name))}`)}`]),
    `  -d ${quoted(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...rest, _meta: meta } }))}`,
  ];
  return lines.join(" \\\n");
}

/** In base64 if a header can't carry the text unchanged. @param {string} text */
function headerText(text) {
  if (/^[\x20-\x7e]*$/u.test(text) && text === text.trim()) return text;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;
}

/** @param {string} method @param {string} comment how a comment begins */
function notOffered(method, comment) {
  return `${comment} The client has no function for ${method}. Copy it as curl.`;
}

/** @param {CopiedCall} call @returns {[name: string, ...args: string[]] | null} call of the Python client */
function pythonCall({ method, params }) {
  const rest = bare(params);
  const { ref = {}, argument = {}, context } = rest;
  const reference = ref.type === "ref/prompt" ? `types.PromptReference(name=${literal(ref.name)})` : `types.ResourceTemplateReference(uri=${literal(ref.uri)})`;
  const cursor = rest.cursor === undefined ? [] : [`cursor=${literal(rest.cursor)}`];
  /** @type {Record<string, [name: string, ...args: string[]]>} */
  const calls = {
    [TOOLS_CALL]: ["call_tool", literal(rest.name), literal(rest.arguments ?? {})],
    [RESOURCES_READ]: ["read_resource", literal(rest.uri)],
    [PROMPTS_GET]: ["get_prompt", literal(rest.name), literal(rest.arguments ?? {})],
    [COMPLETION_COMPLETE]: ["complete", reference, literal(argument), ...(context?.arguments ? [literal(context.arguments)] : [])],
    [TOOLS_LIST]: ["list_tools", ...cursor],
    [RESOURCES_LIST]: ["list_resources", ...cursor],
    [RESOURCES_TEMPLATES_LIST]: ["list_resource_templates", ...cursor],
    [PROMPTS_LIST]: ["list_prompts", ...cursor],
  };
  return Object.hasOwn(calls, method) ? (calls[method] ?? null) : null;
}

/** @param {string} method */
function pythonTypes(method) {
  return method === COMPLETION_COMPLETE ? ["import mcp_types as types"] : [];
}

/** @param {string} url @param {string} indent */
function pythonClient(url, indent) {
  return [
    `async with (`,
    `    httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,`,
    `    Client(streamable_http_client(${literal(url)}, http_client=http)) as client,`,
    `):`,
  ].map((line) => indent + line);
}

const PYTHON_IMPORTS = ["import os", "", "import httpx2", "from mcp.client.client import Client", "from mcp.client.streamable_http import streamable_http_client"];
const PYTHON_TOKEN = 'HEADERS = {"Authorization": "Bearer " + os.environ["TABRELAY_TOKEN"]}';

/** @param {CopiedCall} call */
function python(call) {
  const found = pythonCall(call);
  if (!found) return notOffered(call.method, "#");
  const [name, ...args] = found;
  return [
    `# TABRELAY_TOKEN="$(${call.tokenCommand})" python call.py`,
    "import asyncio",
    ...PYTHON_IMPORTS,
    ...pythonTypes(call.method),
    "",
    PYTHON_TOKEN,
    "",
    "",
    "async def main() -> None:",
    ...pythonClient(call.url, "    "),
    `        print(await client.${name}(${args.join(", ")}))`,
    "",
    "",
    "asyncio.run(main())",
  ].join("\n");
}

/** @param {CopiedCall} call */
function pytest(call) {
  const found = pythonCall(call);
  if (!found) return notOffered(call.method, "#");
  const [name, ...args] = found;
  const title = String(bare(call.params).name ?? call.method).replaceAll(/\W+/gu, "_").toLowerCase();
  const { expected, code } = call;
  const made = `await client.${name}(${args.join(", ")})`;
  const check = expected && typeof expected === "object" ? expectedLines(/** @type {Record<string, any>} */ (expected)) : ["        assert result"];
  const fails = ["        with pytest.raises(MCPError) as failed:", `            ${made}`, `        assert failed.value.code == ${code}`];
  return [
    `# TABRELAY_TOKEN="$(${call.tokenCommand})" python -m pytest test_${title}.py   (needs pytest-asyncio)`,
    ...PYTHON_IMPORTS,
    ...pythonTypes(call.method),
    "import pytest",
    ...(code === undefined ? [] : ["from mcp import MCPError"]),
    "",
    PYTHON_TOKEN,
    "",
    "",
    "@pytest.mark.asyncio",
    `async def test_${title}() -> None:`,
    ...pythonClient(call.url, "    "),
    ...(code === undefined ? [`        result = ${made}`, ...check] : fails),
  ].join("\n");
}

/** @param {Record<string, any>} result */
function expectedLines(result) {
  const lines = [];
  if (Array.isArray(result.content)) lines.push(`        assert ${result.isError ? "" : "not "}result.is_error`);
  const texts = (result.content ?? []).filter((/** @type {any} */ block) => block?.type === "text").map((/** @type {any} */ block) => block.text);
  // A hidden value is not what the server returns.
  if (JSON.stringify([result.structuredContent, texts]).includes("[redacted]")) return lines.length ? lines : ["        assert result"];
  if (result.structuredContent !== undefined) lines.push(`        assert result.structured_content == ${literal(result.structuredContent)}`);
  else if (texts.length) lines.push(`        assert [block.text for block in result.content if block.type == "text"] == ${literal(texts)}`);
  return lines.length ? lines : ["        assert result"];
}

/** @param {CopiedCall} call */
function typescript({ url, method, params, tokenCommand }) {
  const rest = bare(params);
  const argument = JSON.stringify(rest, null, 2);
  /** @type {Record<string, string>} */
  const names = {
    [TOOLS_CALL]: "callTool",
    [RESOURCES_READ]: "readResource",
    [PROMPTS_GET]: "getPrompt",
    [COMPLETION_COMPLETE]: "complete",
    [TOOLS_LIST]: "listTools",
    [RESOURCES_LIST]: "listResources",
    [RESOURCES_TEMPLATES_LIST]: "listResourceTemplates",
    [PROMPTS_LIST]: "listPrompts",
  };
  const name = Object.hasOwn(names, method) ? names[method] : undefined;
  if (!name) return notOffered(method, "//");
  return [
    `// TABRELAY_TOKEN="$(${tokenCommand})" npx tsx call.mts   (needs @modelcontextprotocol/sdk)`,
    'import { Client } from "@modelcontextprotocol/sdk/client/index.js";',
    'import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";',
    "",
    'const client = new Client({ name: "script", version: "1.0" });',
    `const transport = new StreamableHTTPClientTransport(new URL(${JSON.stringify(url)}), {`,
    "  requestInit: { headers: { Authorization: `Bearer ${process.env.TABRELAY_TOKEN}` } },",
    "});",
    "await client.connect(transport);",
    `console.log(await client.${name}(${argument === "{}" ? "" : argument}));`,
    "await client.close();",
  ].join("\n");
}

/** A value as Python writes it. @param {unknown} value @returns {string} */
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return `{${Object.entries(value).map(([key, inner]) => `${literal(key)}: ${literal(inner)}`).join(", ")}}`;
}
