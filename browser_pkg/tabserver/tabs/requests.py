"""Routed requests: tool calls, resource reads, prompts and completions, for a tab or the worker to carry out.

Each value gives both the message for a tab and the function that does the same in the worker. Values only: `routing`
chooses the destination, and `calls` sends the request there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..handlers.context import Cancel, Done, Request
from ..handlers.target import ASKING_TAB, Target, take_argument
from ..handlers.toolbox import Toolbox
from ..handlers.uri_templates import check_uri, match
from ..mcp.call import RunningCall
from ..rpc import Refusal
from ..wire.jsonrpc import INVALID_PARAMS
from ..wire.static_tools import TAB_ARGUMENT
from .listing import ListedItem, Listing
from .tab import Message

Texts = Mapping[str, str]


class RoutedRequest(NamedTuple):
    """`kind` and `key`: the listed item. `purpose`: the kind of result, which differs from `kind` for completion only.

    `task`: the members of the message for a tab, beside the tab's own name for the item. `own`: does the same in the
    worker; None for a tool.
    """

    kind: str
    key: str
    purpose: str
    target: Target | None
    arguments: Mapping[str, Any]
    task: Message = MappingProxyType({})
    own: Callable[[Request, Done], Cancel] | None = None

    def message(self, own_key: str) -> Message:
        if self.own is None:
            return {"kind": "tools", "name": own_key, "arguments": self.arguments}
        return {**self.task, "name": own_key}


_NO_ARGUMENTS: Final[Mapping[str, Any]] = MappingProxyType({})


def choose_target(call: RunningCall, named: Target | None = None) -> Target | None:
    """The tab for a request: the one that asked the question it answers, else the one it names, else the pinned one."""
    requested = call.meta.target
    if requested is not None and requested.pins is False:
        call.pin(None)
    state = call.request_state
    if isinstance(state, dict) and ASKING_TAB in state:
        return Target(state[ASKING_TAB])
    if named is not None:
        return named if requested is None else replace(named, pins=requested.pins)
    if requested is not None and requested.tab is not None:
        return requested
    pinned = call.session.caller.tab
    return Target(pinned, is_pinned=True) if pinned is not None else requested


def call_tool(
    listing: Listing, name: str, arguments: dict[str, Any], call: RunningCall, named: Target | None
) -> RoutedRequest:
    """`named`: a tab that is not named in the tool's arguments."""
    if TAB_ARGUMENT in arguments:
        entry = listing.find("tools", name)
        arguments, by_argument = take_argument(arguments, entry.item["inputSchema"] if entry else None)
        named = named or by_argument
    return RoutedRequest("tools", name, "tools", choose_target(call, named), arguments)


def read_resource(listing: Listing, box: Toolbox, uri: str, call: RunningCall) -> RoutedRequest | None:
    """None: no resource has the URI, and no template matches it."""
    found = find_resource(listing, uri)
    if found is None:
        return None
    kind, key, variables = found
    task = {"kind": kind, "uri": uri, "arguments": variables}
    return RoutedRequest(kind, key, kind, choose_target(call), _NO_ARGUMENTS, task, partial(box.read, uri))


def find_resource(listing: Listing, uri: str) -> tuple[str, str, Texts] | None:
    """Kind, key and template variables. A literal URI comes before templates; the worker's items before those of
    tabs."""
    if listing.find("resources", uri) is not None:
        return "resources", uri, {}
    for item in listing.items("templates"):
        variables = match(item["uriTemplate"], uri)
        if variables is not None:
            return "templates", item["uriTemplate"], variables
    return None


def get_prompt(box: Toolbox, name: str, arguments: Texts, call: RunningCall) -> RoutedRequest:
    task, own = {"kind": "prompts", "arguments": arguments}, partial(box.get_prompt, name, arguments)
    return RoutedRequest("prompts", name, "prompts", choose_target(call), _NO_ARGUMENTS, task, own)


def complete(
    entry: ListedItem, box: Toolbox, kind: str, key: str, argument: str, typed: str, others: Texts, call: RunningCall
) -> RoutedRequest:
    """Complete an argument of a prompt or a template. Raises Refusal for an argument that a tab's item does not
    have."""
    own = box.complete_prompt if kind == "prompts" else box.complete_resource
    if entry.tabs and argument not in _arguments(entry, kind):
        raise Refusal(
            INVALID_PARAMS, f'{"prompt" if kind == "prompts" else "resource"} {key} has no argument "{argument}"'
        )
    task = {"kind": "completion", "of": kind, "argument": argument, "typed": typed, "arguments": others}
    run = partial(own, key, argument, typed, others)
    return RoutedRequest(kind, key, "completion", choose_target(call), _NO_ARGUMENTS, task, run)


def _arguments(entry: ListedItem, kind: str) -> list[str]:
    if kind == "templates":
        return check_uri(entry.item["uriTemplate"])
    return [argument["name"] for argument in entry.item.get("arguments", ())]
