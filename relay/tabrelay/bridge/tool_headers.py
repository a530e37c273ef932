"""Tool arguments that must be repeated in `Mcp-Param-*` headers, read from the `tools/list` results that pass.

Only the modern era has such headers. A tool whose schema breaks their rules is removed from the list, as the
specification requires. The rules are the official SDK's. Loading it can take seconds, so it is loaded with the first
list that mentions such headers. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tabrelay.bridge.messages import BridgeMessage, dump

KEY: Final = b'"x-mcp-header"'
MAX_TOOLS: Final = 10_000


class ToolHeaders:
    def __init__(self) -> None:
        self._tools: dict[str, dict[tuple[str, ...], str]] = {}  # paths of arguments, and their headers

    def headers(self, message: BridgeMessage) -> dict[str, str]:
        """`Mcp-Param-*` of a tool call."""
        name = message.params.get("name")
        if not isinstance(name, str) or name not in self._tools:
            return {}
        from mcp.shared.inbound import mcp_param_headers

        return mcp_param_headers(self._tools[name], message.params.get("arguments") or {})

    def learn(self, raw: bytes, value: Any) -> tuple[bytes, tuple[str, ...]]:
        """Reads a result of `tools/list`. Returns it for the client, and the names of the tools that were removed."""
        result = value.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return raw, ()
        if KEY not in raw:
            for tool in tools:
                self._tools.pop(str(tool.get("name")) if isinstance(tool, dict) else "", None)
            return raw, ()
        broken = [index for index, tool in enumerate(tools) if isinstance(tool, dict) and not self._learn(tool)]
        if not broken:
            return raw, ()
        # Parsed again with the standard library, which keeps every number unchanged.
        whole = json.loads(raw)
        whole["result"]["tools"] = [tool for index, tool in enumerate(whole["result"]["tools"]) if index not in broken]
        return dump(whole), tuple(str(tools[index].get("name")) for index in broken)

    def _learn(self, tool: dict[str, Any]) -> bool:
        """False if the client must not see the tool."""
        from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

        name, schema = str(tool.get("name")), tool.get("inputSchema")
        self._tools.pop(name, None)
        if find_invalid_x_mcp_header(schema) is not None:
            return False
        if (wanted := x_mcp_header_map(schema)) and len(self._tools) < MAX_TOOLS:
            self._tools[name] = wanted
        return True
