"""MCP server of the official Python SDK with one app, on stdio."""

from __future__ import annotations

from mcp.server.apps import Apps
from mcp.server.mcpserver import MCPServer

PAGE = """<!doctype html><p></p><script>
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
addEventListener("message", ({ data }) => {
  if (data.id === 1) send({ method: "ui/notifications/initialized", params: {} });
  if (data.method === "ui/notifications/tool-result") {
    document.querySelector("p").textContent = data.params.content[0].text;
  }
});
const appInfo = { name: "clock", version: "1" };
send({ id: 1, method: "ui/initialize", params: { protocolVersion: "2026-01-26", appInfo, appCapabilities: {} } });
</script>"""

apps = Apps()


@apps.tool(resource_uri="ui://clock/app.html", description="Show the time")
def clock() -> str:
    return "It is noon."


apps.add_html_resource("ui://clock/app.html", PAGE)

if __name__ == "__main__":
    MCPServer("clock", extensions=[apps]).run("stdio")
