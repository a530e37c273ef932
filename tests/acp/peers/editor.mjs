// An editor on the official TypeScript SDK that provides an MCP server over ACP. It opens a session with that server, sends
// the prompts that it is given as a JSON array, and prints what became of them as one line of JSON.
// usage: EDITOR_CWD=DIR editor.mjs PROMPTS COMMAND [ARGUMENT…]

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, McpOverAcpProvider, methods, ndJsonStream } from "@agentclientprotocol/sdk/unstable";

const [prompts, command, ...args] = process.argv.slice(2);
const cwd = process.env.EDITOR_CWD ?? process.cwd();
const agent = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const calls = [];
const said = [];
const stopReasons = [];

const tools = [{ name: "greet", description: "Greet.", inputSchema: { type: "object" } }];
const own = { resultType: "complete", ttlMs: 0, cacheScope: "private" };

/** The MCP server, written out: what it answers is up to the test, not to another library. */
const handler = async ({ method, params, notify, clientInfo }) => {
  calls.push(method);
  if (method === "server/discover") {
    return { result: { ...own, supportedVersions: ["2026-07-28"], capabilities: { tools: {} } } };
  }
  if (method === "tools/list") return { result: { ...own, tools } };
  if (method === "tools/call") {
    await notify("notifications/progress", { progressToken: params._meta.progressToken ?? 0, progress: 1 });
    const text = `Hello ${params.arguments.name}, says the editor to ${clientInfo?.name}`;
    return { result: { resultType: "complete", content: [{ type: "text", text }] } };
  }
  return { error: { code: -32601, message: `no ${method}` } };
};

const provider = new McpOverAcpProvider();
const app = client()
  .onRequest(methods.client.mcp.message, provider.handleRequest)
  .onNotification(methods.client.session.update, ({ params }) => {
    if (params.update.sessionUpdate === "agent_message_chunk") said[said.length - 1] += params.update.content.text;
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    const allow = params.options.find((option) => option.kind.startsWith("allow"));
    return { outcome: { outcome: "selected", optionId: allow.optionId } };
  });
const connection = app.connect(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));
const server = provider.registerServer(connection.agent, { name: "editor", handler });
const { agentCapabilities } = await connection.agent.request(methods.agent.initialize, {
  protocolVersion: 1,
  clientCapabilities: {},
});
const { sessionId } = await connection.agent.request(methods.agent.session.new, {
  cwd,
  mcpServers: [server.declaration],
});
for (const text of JSON.parse(prompts)) {
  said.push("");
  const prompt = [{ type: "text", text }];
  const { stopReason } = await connection.agent.request(methods.agent.session.prompt, { sessionId, prompt });
  stopReasons.push(stopReason);
}
console.log(JSON.stringify({ said, calls, stopReasons, acp: agentCapabilities.mcpCapabilities.acp }));
agent.stdin.end();
agent.once("exit", (code) => process.exit(code ?? 1));
