// A page as a developer writes it with the official TypeScript SDK v1: a Server over the SDK's own WebSocket transport
// (subprotocol `mcp`). It knows nothing of Tabrelay. The test reads what happened from `window.seen`.

import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const seen = (window.seen = { calls: [], cancelled: [], connected: 0 });
const object = { type: "object" };
const tools = ["add", "count", "wait", "greet"].map((name) => ({ name, description: name, inputSchema: object }));
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });

const server = new Server({ name: "sdk-page", version: "1.0.0" }, { capabilities: { tools: { listChanged: true } } });
server.oninitialized = () => {
  seen.connected += 1;
};
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
  const { name, arguments: args = {} } = params;
  seen.calls.push(name);
  switch (name) {
    case "add":
      return text(args.a + args.b);
    case "count":
      for (let progress = 1; progress <= args.to; progress += 1) {
        await extra.sendNotification({
          method: "notifications/progress",
          params: { progressToken: extra._meta.progressToken, progress, total: args.to },
        });
      }
      return text(args.to);
    case "wait":
      await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
      seen.cancelled.push(name);
      return text("never read");
    case "greet": {
      const properties = { name: { type: "string" } };
      const answer = await server.elicitInput({
        message: "What is your name?",
        requestedSchema: { type: "object", properties, required: ["name"] },
      });
      return text(answer.action === "accept" ? `Hello ${answer.content.name}` : answer.action);
    }
    default:
      throw new Error(`no tool ${name}`);
  }
});

const url = new URL(new URLSearchParams(location.search).get("relay"));
await server.connect(new WebSocketClientTransport(url));
