// Official TypeScript clients of tasks: node task_client.mjs URL TOKEN SDK TOOL ARGUMENTS. One line of JSON for each event.
// "v1": the SDK's own tasks of 2025-11-25. "legacy", "modern": @modelcontextprotocol/ext-tasks with the v2 client.
const [url, token, sdk, tool, args] = process.argv.slice(2);
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const clientInfo = { name: `typescript-${sdk}`, version: "1" };
const say = (event) => console.log(JSON.stringify(event));
const answer = async () => ({ action: "accept", content: { count: 4 } });

if (sdk === "v1") {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
  const client = new Client(clientInfo, { capabilities: { elicitation: {}, tasks: {} } });
  client.setRequestHandler(ElicitRequestSchema, answer);
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  await client.listTools();
  const stream = client.experimental.tasks.callToolStream({ name: tool, arguments: JSON.parse(args) });
  for await (const { type, task, result, error } of stream) {
    say({ type, task: task?.taskId, status: task?.status, text: result?.content[0].text, error: error?.message });
  }
  await client.close();
} else {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { createTaskSessionFromClient, resultFromTaskOutcome } = await import("@modelcontextprotocol/ext-tasks/client");
  const isModern = sdk === "modern";
  const capabilities = isModern ? { extensions: { "io.modelcontextprotocol/tasks": {} } } : {};
  const versionNegotiation = isModern ? { mode: "auto" } : undefined;
  const client = new Client(clientInfo, { capabilities, versionNegotiation });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  const protocolVersion = client.getNegotiatedProtocolVersion();
  let ids = 0;
  const rawDispatch = async (request) => {
    const headers = {
      ...requestInit.headers, "Content-Type": "application/json", Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": protocolVersion, "Mcp-Method": request.method,
      "Mcp-Name": request.params.taskId ?? request.params.name,
    };
    const answered = await fetch(url, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", id: `raw-${++ids}`, ...request }) });
    const text = await answered.text();
    const { result, error } = JSON.parse(text.startsWith("{") ? text : text.split("data: ").at(-1));
    return error ? { kind: "error", error } : { kind: "result", result };
  };
  const framing = { rawDispatch, v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: capabilities } };
  const session = createTaskSessionFromClient(client, { endpointId: "test", ...(isModern && framing) });
  const execution = await session.callTool(tool, JSON.parse(args));
  const { outcome } = await execution.settle();
  say({ type: "result", text: resultFromTaskOutcome(outcome).content[0].text });
  await session.close();
  await client.close();
}
