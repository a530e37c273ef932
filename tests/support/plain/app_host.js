// A client with MCP Apps: shows the page of a tool in a sandbox and carries its messages, with the official AppBridge.
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const APPS = "io.modelcontextprotocol/ui";
const TYPE = "text/html;profile=mcp-app";

globalThis.connectClient = async (url, token, era, hasApps = true) => {
  const extensions = hasApps ? { [APPS]: { mimeTypes: [TYPE] } } : {};
  const versionNegotiation = era === "modern" ? { mode: "auto" } : undefined;
  const client = new Client({ name: "host", version: "1" }, { capabilities: { extensions }, versionNegotiation });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
};

/** Call a tool and show its app. Returns the sandboxed frame. */
globalThis.showApp = async (client, name, args = {}) => {
  const { tools } = await client.listTools();
  const uri = tools.find((tool) => tool.name === name)._meta.ui.resourceUri;
  const result = await client.callTool({ name, arguments: args });
  const [content] = (await client.readResource({ uri })).contents;
  if (content.mimeType !== TYPE) throw new Error(`the page is ${content.mimeType}`);
  const capabilities = { serverTools: {}, serverResources: {}, openLinks: {} };
  const bridge = new AppBridge(client, { name: "host", version: "1" }, capabilities);
  const frame = document.createElement("iframe");
  frame.id = name;
  frame.sandbox.add("allow-scripts");
  const started = new Promise((resolve) => (bridge.oninitialized = resolve));
  const sized = new Promise((resolve) => (bridge.onsizechange = resolve));
  document.body.append(frame);
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  const { resourceDomains = [], connectDomains = [], baseUriDomains = [] } = content._meta?.ui?.csp ?? {};
  const policy = [
    "default-src 'none'",
    `script-src 'unsafe-inline' ${resourceDomains.join(" ")}`,
    `style-src 'unsafe-inline' ${resourceDomains.join(" ")}`,
    `connect-src ${connectDomains.join(" ") || "'none'"}`,
    `base-uri ${baseUriDomains.join(" ") || "'self'"}`,
  ].join("; ");
  frame.srcdoc = `<meta http-equiv="Content-Security-Policy" content="${policy}">${content.text}`;
  await started;
  await bridge.sendToolInput({ arguments: args });
  await bridge.sendToolResult(result);
  return { result, size: await sized };
};
