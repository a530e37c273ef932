// The official TypeScript clients, driven by lines of JSON on stdin: {n, do, talk, …}. Each is answered by one on stdout.
// One process for all of them: connections are independent, and Node takes a second to start.
import { createInterface } from "node:readline";

const talks = new Map();

async function connect({ sdk, mode, url, token, child }) {
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  const about = { name: `typescript-${sdk}`, version: "1" };
  if (sdk === "v2") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const client = new Client(about, mode === "auto" ? { versionNegotiation: { mode: "auto" } } : {});
    const over = child ? new StdioClientTransport(child) : new StreamableHTTPClientTransport(new URL(url), { requestInit });
    await client.connect(over);
    const call = (params, options) => client.callTool(params, options);
    return { client, version: client.getNegotiatedProtocolVersion(), call };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const client = new Client(about);
  let transport;
  if (child) {
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    transport = new StdioClientTransport(child);
  } else if (mode === "sse") {
    const { SSEClientTransport } = await import("@modelcontextprotocol/sdk/client/sse.js");
    transport = new SSEClientTransport(new URL(`${url}/sse`), { requestInit });
  } else {
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  }
  await client.connect(transport);
  return { client, version: transport.protocolVersion ?? null, call: (params, options) => client.callTool(params, undefined, options) };
}

const verbs = {
  async connect(command) {
    const talk = await connect(command);
    talks.set(command.talk, talk);
    return { version: talk.version };
  },
  async tools({ talk }) {
    return { tools: (await talks.get(talk).client.listTools()).tools.map(({ name }) => name) };
  },
  async call({ talk, tool, args }) {
    const progress = [];
    const onprogress = ({ progress: step }) => progress.push(step);
    try {
      const { content, isError } = await talks.get(talk).call({ name: tool, arguments: args }, { onprogress });
      return { text: content[0].text, is_error: isError ?? false, progress };
    } catch (error) {
      const { code, message, data } = error;
      // What the transport says has no code of the protocol's.
      return Number.isInteger(code) && code < 0 ? { error: { code, message, data } } : { failure: String(message) };
    }
  },
  async cancel({ talk, tool }) {
    const abort = new AbortController();
    const options = { signal: abort.signal, onprogress: () => abort.abort("enough") };
    try {
      await talks.get(talk).call({ name: tool, arguments: {} }, options);
      return { cancelled: false };
    } catch {
      return { cancelled: abort.signal.aborted };
    }
  },
  async close({ talk }) {
    await talks.get(talk)?.client.close();
    talks.delete(talk);
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  verbs[command.do](command).then(
    (answer) => console.log(JSON.stringify({ n: command.n, ...answer })),
    (error) => console.log(JSON.stringify({ n: command.n, failure: String(error?.message ?? error) })),
  );
}
process.exit(0);
