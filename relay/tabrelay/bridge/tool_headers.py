"""Tool arguments that must be repeated in `Mcp-Param-*` headers, read from the `tools/list` results that pass.

Only the modern era has such headers. A tool whose schema breaks their rules is removed from the list, as the
specification requires. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tabrelay.bridge.messages import BridgeMessage, dump
from tabrelay.http import param_headers

MAX_TOOLS: Final = 10_000


class ToolHeaders:
    def __init__(self) -> None:
        self._tools: dict[str, tuple[param_headers.ParamHeader, ...]] = {}

    def headers(self, message: BridgeMessage) -> dict[str, str]:
        """`Mcp-Param-*` of a tool call."""
        name = message.params.get("name")
        wanted = self._tools.get(name, ()) if isinstance(name, str) else ()
        return param_headers.write(wanted, message.params.get("arguments"))

    def learn(self, raw: bytes, value: Any) -> tuple[bytes, tuple[str, ...]]:
        """Reads a result of `tools/list`. Returns it for the client, and the names of the tools that were removed."""
        result = value.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(tools, list):
            return raw, ()
        broken = [index for index, tool in enumerate(tools) if not self._learn(tool)]
        if not broken:
            return raw, ()
        # Parsed again with the standard library, which keeps every number unchanged.
        whole = json.loads(raw)
        whole["result"]["tools"] = [tool for index, tool in enumerate(whole["result"]["tools"]) if index not in broken]
        return dump(whole), tuple(str(tools[index].get("name")) for index in broken)

    def _learn(self, tool: Any) -> bool:
        """False if the client must not see the tool."""
        if not isinstance(tool, dict):
            return True
        name, wanted = tool.get("name"), param_headers.read(tool.get("inputSchema"))
        if isinstance(name, str):
            self._tools.pop(name, None)
            if wanted and len(self._tools) < MAX_TOOLS:
                self._tools[name] = wanted
        return wanted is not None
