"""What a modern HTTP server wants repeated in headers: the method, the name, and arguments that a tool marks.

Which arguments these are stands in the tool's schema, so a server's tools are read before the first call of one. A tool
whose marks break the rules is not passed on: no client may call it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from tabrelay import mcp_headers
from tabrelay.http import param_headers
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.handshake import request_meta
from tabserver.wire import methods

log = logging.getLogger(__name__)

# Where the value that `Mcp-Name` repeats stands in the params.
NAMED_BY: Final = {methods.TOOLS_CALL: "name", methods.PROMPTS_GET: "name", methods.RESOURCES_READ: "uri"}
MAX_PAGES: Final = 64
MAX_TOOLS: Final = 10_000


class RoutingHeaders:
    """The tools of one upstream, as far as headers go."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tools: dict[str, tuple[param_headers.ParamHeader, ...]] = {}
        self._loaded_from: UpstreamConnection | None = None
        self._lock = asyncio.Lock()

    def invalidate(self) -> None:
        """The tools are others now."""
        self._loaded_from = None

    def filter_tools(self, tools: list[Any]) -> list[Any]:
        """The tools that may be passed on; what they want repeated is remembered."""
        kept = []
        for tool in tools:
            wanted = param_headers.read(tool.get("inputSchema")) if isinstance(tool, dict) else ()
            if wanted is None:
                log.warning("%s: a tool is left out, since its x-mcp-header breaks the rules", self._server)
                continue
            kept.append(tool)
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._tools.pop(tool["name"], None)
                if wanted and len(self._tools) < MAX_TOOLS:
                    self._tools[tool["name"]] = wanted
        return kept

    async def headers(self, connection: UpstreamConnection, method: str, params: dict[str, Any]) -> dict[str, str]:
        assert connection.about is not None
        found = {mcp_headers.PROTOCOL_VERSION: connection.about.version, mcp_headers.METHOD: method}
        name = params.get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            found[mcp_headers.NAME] = param_headers.encode(name)
        if method == methods.TOOLS_CALL and isinstance(name, str) and params.get("arguments"):
            await self._load_tools(connection)
            found |= param_headers.write(self._tools.get(name, ()), params["arguments"])
        return found

    async def _load_tools(self, connection: UpstreamConnection) -> None:
        """Read the tools, once for each connection and each change. Raises LineFault."""
        async with self._lock:
            if self._loaded_from is connection:
                return
            self._loaded_from = connection
            assert connection.about is not None
            headers = {mcp_headers.PROTOCOL_VERSION: connection.about.version, mcp_headers.METHOD: methods.TOOLS_LIST}
            params: dict[str, Any] = {"_meta": request_meta(connection.about.version)}
            try:
                for _page in range(MAX_PAGES):
                    result = await connection.dispatcher.request(methods.TOOLS_LIST, params, headers=headers)
                    tools, cursor = result.get("tools"), result.get("nextCursor")
                    self.filter_tools(tools if isinstance(tools, list) else [])
                    if not isinstance(cursor, str):
                        break
                    params["cursor"] = cursor
            except MCPError as error:
                log.debug("%s: could not read its tools: %s", self._server, error)
            except BaseException:
                self._loaded_from = None
                raise
