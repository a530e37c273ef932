// The official TypeScript clients, driven by arguments: node typescript.mjs v1|v2 legacy|auto|sse URL TOKEN work|call [TOOL]
// Prints one line of JSON.
const [, , sdk, mode, url, token, verb, tool = "echo"] = process.argv;
const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const about = { name: `typescript-${sdk}`, version: "1" };

async function connect() {
  if (sdk === "v2") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const client = new Client(about, mode === "auto" ? { versionNegotiation: { mode: "auto" } } : {});
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    return { client, version: client.getNegotiatedProtocolVersion(), call: (params, options) => client.callTool(params, options) };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const client = new Client(about);
  let transport;
  if (mode === "sse") {
    const { SSEClientTransport } = await import("@modelcontextprotocol/sdk/client/sse.js");
    transport = new SSEClientTransport(new URL(`${url}/sse`), { requestInit });
  } else {
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  }
  await client.connect(transport);
  return {
    client,
    version: transport.protocolVersion ?? "2024-11-05",
    call: (params, options) => client.callTool(params, undefined, options),
  };
}

async function work({ client, version, call }) {
  const tools = (await client.listTools()).tools.map(({ name }) => name);
  const echoed = await call({ name: "echo", arguments: { text: "hello" } });
  const progress = [];
  await call({ name: "steps", arguments: {} }, { onprogress: ({ progress: step }) => progress.push(step) });
  const abort = new AbortController();
  let cancelled = false;
  try {
    await call({ name: "hang", arguments: {} }, { signal: abort.signal, onprogress: () => abort.abort("enough") });
  } catch {
    cancelled = true;
  }
  const after = await call({ name: "echo", arguments: { text: "after" } });
  return { version, tools, text: echoed.content[0].text, progress, cancelled, after: after.content[0].text };
}

async function main() {
  let connection;
  try {
    connection = await connect();
    if (verb === "work") return await work(connection);
    const tools = (await connection.client.listTools()).tools.map(({ name }) => name);
    try {
      const result = await connection.call({ name: tool, arguments: {} });
      return { version: connection.version, tools, text: result.content?.[0]?.text };
    } catch ({ code, message, data }) {
      return { version: connection.version, tools, error: { code, message, data } };
    }
  } catch (error) {
    return { failure: String(error.message ?? error) };
  }
}

console.log(JSON.stringify(await main()));
process.exit(0);
