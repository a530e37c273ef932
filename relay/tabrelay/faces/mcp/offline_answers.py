"""Answers from the cached catalogue for a server whose browser is disconnected: initialize, discovery, lists.

Discovery must not fail because a browser is away: a client whose discovery fails downgrades to another era, or drops
the server permanently. Calls are not answered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tabrelay.routing.catalogue_store import Catalogue
from tabserver.wire import eras, extensions, methods

# For a server that was declared but never connected: announce tools, so that clients listen for changes.
UNSEEN: Final[dict[str, Any]] = {"capabilities": {"tools": {"listChanged": True}}}
# method -> (key in the result, name in the catalogue)
LISTS: Final = {
    methods.TOOLS_LIST: ("tools", "tools"),
    methods.RESOURCES_LIST: ("resources", "resources"),
    methods.RESOURCES_TEMPLATES_LIST: ("resourceTemplates", "templates"),
    methods.PROMPTS_LIST: ("prompts", "prompts"),
    methods.SKILLS_LIST: ("skills", "resources"),
}


def cached_modern_result(
    method: str, server: str, catalogue: Catalogue | None, client: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The result for a modern discovery request; None for anything else. `client`: the client's capabilities."""
    about = catalogue.initialize if catalogue else UNSEEN
    shape: dict[str, Any] = {
        "resultType": "complete",
        # Not cacheable: the browser may reconnect at any moment with another list.
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {eras.META_SERVER_INFO: _server_info(server, about)},
    }
    if method == methods.SERVER_DISCOVER:
        shape["supportedVersions"] = list(eras.MODERN_VERSIONS)
        shape["capabilities"] = _modern_capabilities(about.get("capabilities", UNSEEN["capabilities"]))
        if isinstance(about.get("instructions"), str):
            shape["instructions"] = about["instructions"]
        return shape
    listed = _listed(method, catalogue, client)
    if listed is not None and "tools" in listed:
        listed["tools"] = [_without(tool, "outputSchema", "execution") for tool in listed["tools"]]
    return None if listed is None else shape | listed


def cached_legacy_result(
    method: str, params: dict[str, Any], server: str, catalogue: Catalogue | None, client: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The result for a legacy handshake or discovery request; None for anything else. `client`: its capabilities."""
    about = catalogue.initialize if catalogue else UNSEEN
    if method == methods.INITIALIZE:
        version = eras.negotiate(params.get("protocolVersion"))
        capabilities = about.get("capabilities", UNSEEN["capabilities"])
        result: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": capabilities if version >= eras.TASKS_SINCE else _without(capabilities, "tasks"),
            "serverInfo": eras.server_info_of(_server_info(server, about), version),
        }
        if isinstance(about.get("instructions"), str):
            result["instructions"] = about["instructions"]
        return result
    if method == methods.PING:
        return {}
    if method == methods.LOGGING_SET_LEVEL:
        # The session stores it and replays it to the next browser.
        can_log = "logging" in about.get("capabilities", {})
        return {} if can_log and params.get("level") in methods.LOG_LEVELS else None
    return _listed(method, catalogue, client)


def _listed(method: str, catalogue: Catalogue | None, client: Mapping[str, Any]) -> dict[str, Any] | None:
    """A whole list: a cached one has a single page."""
    if method not in LISTS:
        return None
    key, name = LISTS[method]
    items = list(getattr(catalogue, name)) if catalogue else []
    if method == methods.TOOLS_LIST and not extensions.shows_apps(client):
        items = extensions.without_app_tools(items)
    elif method == methods.RESOURCES_LIST:
        items = extensions.without_skill_entries(items)
    elif method == methods.SKILLS_LIST:
        items = extensions.skills_of(items)
    return {key: items}


def _modern_capabilities(capabilities: dict[str, Any]) -> dict[str, Any]:
    """2026-07-28 has an extension in place of the tasks of 2025-11-25."""
    if "tasks" not in capabilities:
        return capabilities
    extensions = capabilities.get("extensions", {}) | {eras.TASKS: {}}
    return _without(capabilities, "tasks") | {"extensions": extensions}


def _without(item: dict[str, Any], *names: str) -> dict[str, Any]:
    """The catalogue was read by a handshake session. There a structured result that is no object is wrapped in one, and
    a modern client that validates the next result against such a schema would reject it."""
    return {key: value for key, value in item.items() if key not in names}


def _server_info(server: str, about: dict[str, Any]) -> dict[str, Any]:
    info = about.get("serverInfo")
    return info if isinstance(info, dict) else {"name": server, "version": "0"}
