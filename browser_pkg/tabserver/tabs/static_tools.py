"""Static tools: list the tabs and tools of this moment, call a tool, pin a tab.

A tool that is called through `tool_call` gets the same request: progress, questions to the client, cancellation and
errors work as in a direct call. Mistakes before that are tool results that the model can read. The definitions of the
static tools are in `wire.static_tools`, because the relay lists them too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..handlers.context import Cancel, Result
from ..handlers.execute import nothing_to_cancel
from ..handlers.signature import InvalidArguments
from ..handlers.target import Target
from ..handlers.tools import ToolError, UnknownTool, failure, invalid_arguments, text_result
from ..mcp.call import RunningCall
from ..rpc import load, unknown
from ..wire.eras import Era
from ..wire.jsonrpc import show
from ..wire.static_tools import STATIC_NAMES, TAB_PIN, TABS_LIST, TOOL_CALL, TOOLS_LIST, is_static
from .listing import ListedItem
from .tab import Tab

Arguments = dict[str, Any]


class StaticToolsOwner(Protocol):
    """What the static tools need from the hub."""

    @property
    def known_tabs(self) -> Mapping[str, Tab]: ...
    def tool_entries(self) -> Iterable[ListedItem]: ...
    def call(self, name: str, arguments: Arguments, call: RunningCall, named: Target | None = None) -> Cancel: ...


def call_static(owner: StaticToolsOwner, name: str, arguments: Arguments, call: RunningCall) -> Cancel:
    if name == TOOL_CALL:
        return _call_tool(owner, arguments, call)
    try:
        if name == TABS_LIST:
            result = _list_tabs(owner, call)
        elif name == TOOLS_LIST:
            result = _list_tools(owner, _text(arguments, "tab"))
        else:
            assert name == TAB_PIN
            result = _pin(owner, _text(arguments, "tab"), call)
    except ToolError as error:
        call.finish(failure(error))
    else:
        call.finish(result)
    return nothing_to_cancel


def _call_tool(owner: StaticToolsOwner, arguments: Arguments, call: RunningCall) -> Cancel:
    try:
        name, tab = _text(arguments, "name"), _text(arguments, "tab")
        inner = arguments.get("arguments")
        if name is None:
            raise ToolError('Name the tool: {"name": …}. tools_list returns the names.')
        if name == TOOL_CALL:
            raise ToolError("tool_call runs the tools that tools_list shows, not itself.")
        # Some models write the object as JSON text, as they do for function calls.
        if isinstance(inner, str):
            inner = _object(inner)
        if inner is not None and not isinstance(inner, dict):
            raise ToolError(f"arguments: expected object, got {show(inner)}")
        return owner.call(name, inner or {}, call, Target(tab) if tab else None)
    except ToolError as error:
        call.finish(failure(error))
    except UnknownTool as error:
        tools = [entry.item for entry in _tools(owner)]
        call.finish(text_result(unknown("tool", error.name, tools), is_error=True))
    except InvalidArguments as error:
        call.finish(invalid_arguments(str(name), error))
    return nothing_to_cancel


def _list_tabs(owner: StaticToolsOwner, call: RunningCall) -> Result:
    by_rank = sorted(owner.known_tabs.values(), key=lambda tab: tab.rank, reverse=True)
    names: dict[str, list[str]] = {tab.id: [] for tab in by_rank}
    for entry in _tools(owner):
        for tab in entry.tabs:
            names[tab.id].append(entry.item["name"])
    tabs = [
        {
            "id": tab.id,
            "title": tab.title,
            "url": tab.url,
            "visible": tab.is_visible,
            "state": _state(tab),
            "tools": names[tab.id],
        }
        for tab in by_rank
    ]
    return _structured({"tabs": tabs, "pinned": call.caller.tab})


def _state(tab: Tab) -> str:
    if tab.port is None:
        return "loading"
    return "awake" if tab.is_awake else "frozen" if tab.is_frozen else "silent"


def _list_tools(owner: StaticToolsOwner, id: str | None) -> Result:
    tab = _tab(owner, id) if id else None
    listed = []
    for entry in _tools(owner):
        if tab is None or tab in entry.tabs:
            kept = ("name", "title", "description", "inputSchema", "annotations")
            shown = {key: entry.item[key] for key in kept if entry.item.get(key)}
            listed.append(shown | ({"tabs": [tab.id for tab in entry.tabs]} if entry.tabs else {}))
    return _structured({"tools": listed})


def _pin(owner: StaticToolsOwner, id: str | None, call: RunningCall) -> Result:
    if not id:
        call.pin(None)
        return text_result("Your calls go to the tab in front.")
    tab = _tab(owner, id)
    call.pin(tab.id)
    text = f"Your calls go to the tab {tab.label} ({tab.id}) from now on."
    if call.caller.era is Era.MODERN:
        client = (call.caller.client or {}).get("name")
        who = f'every client called "{client}"' if client else "every client without a name"
        # A modern request has no session that could limit the pin, and the model should know that.
        text += f" This applies to {who} with your token, until the tab is unpinned or not used for an hour."
    return text_result(text)


def _tab(owner: StaticToolsOwner, id: str) -> Tab:
    tab = owner.known_tabs.get(id)
    if tab is None:
        there = ", ".join(f"{tab.label} ({tab.id})" for tab in owner.known_tabs.values())
        raise ToolError(f'There is no tab "{id[:64]}". ' + (f"Open tabs: {there}." if there else "No tab is open."))
    return tab


def _tools(owner: StaticToolsOwner) -> list[ListedItem]:
    return [entry for entry in owner.tool_entries() if not is_static(entry.item)]


def _structured(value: dict[str, Any]) -> Result:
    return text_result(json.dumps(value, ensure_ascii=False)) | {"structuredContent": value}


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise ToolError(f"{name}: expected string, got {show(value)}")
    return value


def _object(text: str) -> Any:
    try:
        return load(text) if text.strip() else {}
    except ValueError:
        raise ToolError(f"arguments: expected object, got {show(text)}") from None


assert {TABS_LIST, TOOLS_LIST, TOOL_CALL, TAB_PIN} == STATIC_NAMES
