// A page with no SDK and no subprotocol, in the manner of websocket-mcp: it dials, waits to be initialized, speaks the
// handshake era, adds members of its own to messages, gives a dial up after a second, and dials again without end. The test
// reads what happened from `window.seen`.

const seen = (window.seen = { calls: [], cancelled: [], connected: 0, dials: 0, extras: [] });
const KNOWN = new Set(["jsonrpc", "id", "method", "params", "result", "error"]);
const inputSchema = { type: "object" };
const tools = ["add", "count", "wait", "greet"].map((name) => ({ name, description: name, inputSchema }));
const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const running = new Map();
const asked = new Map();
let socket = null;
let nextId = 0;

const send = (message) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
const related = (id) => ({ relatedRequestId: id, resumptionToken: undefined });

function ask(id, method, params) {
  const mine = nextId++;
  send({ jsonrpc: "2.0", id: mine, method, params, ...related(id) });
  return new Promise((resolve, reject) => asked.set(mine, { resolve, reject }));
}

async function call({ name, arguments: args = {}, _meta }, id, signal) {
  seen.calls.push(name);
  if (name === "add") return text(args.a + args.b);
  if (name === "count") {
    for (let progress = 1; progress <= args.to; progress += 1) {
      const params = { progressToken: _meta.progressToken, progress, total: args.to };
      send({ jsonrpc: "2.0", method: "notifications/progress", params, ...related(id) });
    }
    return text(args.to);
  }
  if (name === "wait") {
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    seen.cancelled.push(name);
    return text("never read");
  }
  const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
  const answer = await ask(id, "elicitation/create", { message: "What is your name?", requestedSchema });
  return text(answer.action === "accept" ? `Hello ${answer.content.name}` : answer.action);
}

async function handle({ id, method, params, result, error }) {
  if (method === undefined) {
    const waiting = asked.get(id);
    asked.delete(id);
    return error ? waiting?.reject(new Error(error.message)) : waiting?.resolve(result);
  }
  if (method === "notifications/initialized") seen.connected += 1;
  if (method === "notifications/cancelled") running.get(params.requestId)?.abort();
  if (id === undefined) return undefined;
  if (method === "initialize") {
    const serverInfo = { name: "bare-page", version: "1.0.0" };
    const about = { protocolVersion: "2025-06-18", capabilities: { tools: { listChanged: true } }, serverInfo };
    return send({ jsonrpc: "2.0", id, result: about });
  }
  if (method === "tools/list") return send({ jsonrpc: "2.0", id, result: { tools } });
  if (method !== "tools/call") return send({ jsonrpc: "2.0", id, error: { code: -32601, message: "no such method" } });
  const controller = new AbortController();
  running.set(id, controller);
  const answer = await call(params, id, controller.signal);
  running.delete(id);
  return controller.signal.aborted ? undefined : send({ jsonrpc: "2.0", id, result: answer });
}

function dial() {
  seen.dials += 1;
  const mine = new WebSocket(new URLSearchParams(location.search).get("relay"));
  const again = setTimeout(dial, 1000);
  mine.onopen = () => {
    clearTimeout(again);
    socket = mine;
  };
  mine.onmessage = (event) => {
    const message = JSON.parse(event.data);
    seen.extras.push(...Object.keys(message).filter((key) => !KNOWN.has(key)));
    handle(message);
  };
  mine.onclose = () => {
    clearTimeout(again);
    setTimeout(dial, 100);
  };
}

dial();
