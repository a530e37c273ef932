"""Static tools: a client that reads the tool list only once, at its start, calls tools that tabs add later with them.

They are the same for every server that has them. Only the definitions are here, because both ends need them: the relay
lists them before a browser has ever connected, the worker lists and runs them.
"""

from __future__ import annotations

from typing import Any, Final

TABS_LIST: Final = "tabs_list"
TOOLS_LIST: Final = "tools_list"
TOOL_CALL: Final = "tool_call"
TAB_PIN: Final = "tab_pin"

# How a request names a tab: in its `_meta`; or in its arguments, for models, which can't write `_meta`.
META_TAB: Final = "tabrelay/tab"
TAB_ARGUMENT: Final = "_tab"

# In a tool's `_meta`: it is a static tool, and not a page's tool of the same name.
META_STATIC: Final = "tabrelay/static"

_TAB: Final = {"type": "string", "description": "The id of a tab, from tabs_list. Default: the tab in front."}


def _tool(
    name: str, title: str, description: str, properties: dict[str, Any], required: tuple[str, ...], **hints: bool
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": hints,
        "_meta": {META_STATIC: True},
    }


STATIC_TOOLS: Final[tuple[dict[str, Any], ...]] = (
    _tool(
        TABS_LIST,
        "List the browser's tabs",
        "Lists the browser tabs that are open now: id, title, address, whether the user sees it, and its tools.",
        {},
        (),
        readOnlyHint=True,
        openWorldHint=False,
    ),
    _tool(
        TOOLS_LIST,
        "List the tools there are now",
        "Lists the tools that this server's browser tabs offer right now, with their input schemas. Tools come and go "
        "with tabs, so the list that you were given may be out of date. Run one with tool_call.",
        {"tab": _TAB | {"description": "Only the tools of this tab: an id from tabs_list."}},
        (),
        readOnlyHint=True,
        openWorldHint=False,
    ),
    _tool(
        TOOL_CALL,
        "Run a tool",
        "Runs a tool that tools_list shows, and returns its result.",
        {
            "name": {"type": "string", "description": "The tool's name, from tools_list."},
            "arguments": {"type": "object", "description": "What its input schema asks for."},
            "tab": _TAB,
        },
        ("name",),
        readOnlyHint=False,
        destructiveHint=True,
        openWorldHint=True,
    ),
    _tool(
        TAB_PIN,
        "Stay with one tab",
        "Sends your calls to one tab from now on, whichever is in front; also after a reload. Without a tab, your "
        "calls go to the tab in front again.",
        {"tab": _TAB | {"description": "The tab to stay with: an id from tabs_list. Leave it out to unpin."}},
        (),
        readOnlyHint=False,
        destructiveHint=False,
        idempotentHint=True,
        openWorldHint=False,
    ),
)
STATIC_NAMES: Final = frozenset(tool["name"] for tool in STATIC_TOOLS)


def is_static(tool: dict[str, Any]) -> bool:
    meta = tool.get("_meta")
    return isinstance(meta, dict) and meta.get(META_STATIC) is True
