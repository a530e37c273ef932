/**
 * The floor of the way through a browser: a shared worker in plain JavaScript that takes calls off the relay's socket and
 * hands them to the tab, or answers them itself.
 *
 * It speaks just enough of the link to be let in: sequence numbers and acknowledgements, but no replay, no resume, no
 * bounds, no ledger; one tab, two tools, no checks. Whatever the product's worker takes longer than this is its own doing.
 */

const SCHEMA = { type: "object", properties: { text: { type: "string" } } };
const TOOLS = ["in_tab", "in_worker"].map((name) => ({ name, description: "Say it again.", inputSchema: SCHEMA }));
const ABOUT = { name: "floor", version: "1" };

/** @type {MessagePort} */
let tab;
/** @type {WebSocket} */
let socket;
let sent = 0;
let taken = 0;

onconnect = ({ ports: [port] }) => {
  tab = port;
  port.onmessage = ({ data }) => {
    if (data.dial) dial(data.dial);
    else reply(data.c, data.i, result(data.text));
  };
};

function dial({ url, token, server }) {
  const secret = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  socket = new WebSocket(url, ["tabrelay.v1", `bearer.${secret}`]);
  const inst = crypto.randomUUID();
  socket.onopen = () => socket.send(JSON.stringify({ t: "hello", v: [1, 1], build: "floor", server, inst, rx: 0 }));
  socket.onmessage = ({ data }) => take(data);
}

function take(frame) {
  const cut = frame.indexOf("\n");
  const head = JSON.parse(cut < 0 ? frame : frame.slice(0, cut));
  if (head.t === "welcome") return tab.postMessage({ isUp: true });
  if (head.s) taken = head.s;
  if (head.t !== "msg" || head.k !== "req") return;
  const { method, params } = JSON.parse(frame.slice(cut + 1));
  if (method !== "tools/call") return reply(head.c, head.i, about(method));
  if (params.name === "in_tab") return tab.postMessage({ c: head.c, i: head.i, args: params.arguments });
  reply(head.c, head.i, result(params.arguments.text));
}

function result(text) {
  return { resultType: "complete", content: [{ type: "text", text }] };
}

function about(method) {
  if (method === "initialize") return { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: ABOUT };
  const complete = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
  if (method === "server/discover") {
    return { ...complete, supportedVersions: ["2026-07-28"], capabilities: { tools: {} }, serverInfo: ABOUT };
  }
  return { ...complete, tools: TOOLS };
}

function reply(c, i, value) {
  const head = JSON.stringify({ t: "msg", s: ++sent, a: taken, c, k: "res", i });
  socket.send(`${head}\n${JSON.stringify({ jsonrpc: "2.0", id: i, result: value })}`);
}
