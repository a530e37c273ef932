"""Routing headers for modern HTTP upstreams: method, name, and arguments that a tool's schema marks.

The marks (`x-mcp-header`) are in the tool's schema, so the tools are read before the first call of one. A tool with
invalid marks is removed from lists: no client may call it. Headers of incoming requests are checked in `faces`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from tabrelay import mcp_headers
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.handshake import request_meta
from tabrelay.peers.upstreams.task_owners import ABOUT_ONE
from tabserver.wire import methods

log = logging.getLogger(__name__)

MAX_PAGES: Final = 64
MAX_TOOLS: Final = 10_000


class RoutingHeaders:
    """The marked arguments of one upstream's tools."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tools: dict[str, dict[tuple[str, ...], str]] = {}  # paths of arguments, and their headers
        self._loaded_from: UpstreamConnection | None = None
        self._lock = asyncio.Lock()

    def invalidate(self) -> None:
        """The tools have changed: read them again before the next call."""
        self._loaded_from = None

    def filter_tools(self, tools: list[Any]) -> list[Any]:
        """The tools that may be passed on. Their marked arguments are cached."""
        kept = []
        for tool in tools:
            schema = tool.get("inputSchema") if isinstance(tool, dict) else None
            if find_invalid_x_mcp_header(schema) is not None:
                log.warning("%s: a tool is left out, since its x-mcp-header is invalid", self._server)
                continue
            kept.append(tool)
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                self._tools.pop(tool["name"], None)
                if (wanted := x_mcp_header_map(schema)) and len(self._tools) < MAX_TOOLS:
                    self._tools[tool["name"]] = wanted
        return kept

    async def headers(self, connection: UpstreamConnection, method: str, params: dict[str, Any]) -> dict[str, str]:
        assert connection.about is not None
        found = {mcp_headers.PROTOCOL_VERSION: connection.about.version, mcp_headers.METHOD: method}
        name = params.get("taskId" if method in ABOUT_ONE else NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            found[mcp_headers.NAME] = encode_header_value(name)
        if method == methods.TOOLS_CALL and isinstance(name, str) and params.get("arguments"):
            await self._load_tools(connection)
            found |= mcp_param_headers(self._tools.get(name, {}), params["arguments"])
        return found

    async def _load_tools(self, connection: UpstreamConnection) -> None:
        """Read the tools, once for each connection and each change. Raises ConnectionFault."""
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
