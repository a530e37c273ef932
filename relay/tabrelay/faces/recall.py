"""Answers for a server whose browser is away, from its last known catalogue. Discovery never fails for that reason:
a client that can't discover downgrades, or gives the server up for good. Calls are not answered here."""

from __future__ import annotations

from typing import Any, Final

from tabrelay.shelf import Catalogue
from tabserver.wire import eras

# A server that was declared but never seen: say that tools may come, so that clients listen for them.
UNSEEN: Final[dict[str, Any]] = {"capabilities": {"tools": {"listChanged": True}}}


def recall_modern(method: str, server: str, catalogue: Catalogue | None) -> dict[str, Any] | None:
    """The result for a modern discovery request; None for anything else."""
    about = catalogue.initialize if catalogue else UNSEEN
    shape: dict[str, Any] = {
        "resultType": "complete",
        # Not to be cached: the browser may come back at any moment with another list.
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {eras.META_SERVER_INFO: _server_info(server, about)},
    }
    if method == "server/discover":
        shape["supportedVersions"] = list(eras.MODERN_VERSIONS)
        shape["capabilities"] = about.get("capabilities", UNSEEN["capabilities"])
        if isinstance(about.get("instructions"), str):
            shape["instructions"] = about["instructions"]
        return shape
    if method == "tools/list":
        shape["tools"] = [_any_result(tool) for tool in catalogue.tools] if catalogue else []
        return shape
    return None


def recall_legacy(
    method: str, params: dict[str, Any], server: str, catalogue: Catalogue | None
) -> dict[str, Any] | None:
    """The result for a legacy handshake or discovery request; None for anything else."""
    about = catalogue.initialize if catalogue else UNSEEN
    if method == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": eras.negotiate(params.get("protocolVersion")),
            "capabilities": about.get("capabilities", UNSEEN["capabilities"]),
            "serverInfo": _server_info(server, about),
        }
        if isinstance(about.get("instructions"), str):
            result["instructions"] = about["instructions"]
        return result
    if method == "tools/list":
        return {"tools": list(catalogue.tools) if catalogue else []}
    if method == "ping":
        return {}
    return None


def _any_result(tool: dict[str, Any]) -> dict[str, Any]:
    """The catalogue was read as a legacy caller, and legacy results have another form where they are no objects: a
    modern client that holds the next result to a legacy schema would refuse it."""
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def _server_info(server: str, about: dict[str, Any]) -> dict[str, Any]:
    info = about.get("serverInfo")
    return info if isinstance(info, dict) else {"name": server, "version": "0"}
