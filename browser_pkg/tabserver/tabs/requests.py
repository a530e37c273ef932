"""Routed requests: tool calls, resource reads, prompts and completions, for a tab or the worker to carry out.

Each value holds both the message for a tab and the function that does the same in the worker. Values only: `routing`
chooses the destination, and `calls` sends the request there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from ..handlers.context import Cancel, Done, Request
from ..handlers.target import ASKING_TAB, Target, take_argument
from ..handlers.toolbox import Toolbox
from ..handlers.uri_templates import check_uri, match
from ..rpc import Refusal
from ..wire.jsonrpc import INVALID_PARAMS
from .listing import ListedItem, Listing
from .tab import Message

Texts = Mapping[str, str]


class RoutedRequest(NamedTuple):
    """`kind` and `key`: the listed item. `purpose`: the kind of result, which differs from `kind` for completion only.

    `message`: builds the message for a tab from the tab's own name for the item. `own`: does the same in the worker.
    """

    kind: str
    key: str
    purpose: str
    target: Target | None
    message: Callable[[str], Message]
    own: Callable[[Request, Done], Cancel]
    arguments: Mapping[str, Any] = MappingProxyType({})


def choose_target(request: Request, named: Target | None = None) -> Target | None:
    """The tab for a request: the one that asked the question it answers, else the one it names, else the pinned one."""
    requested = request.target
    if requested is not None and requested.pins is False:
        request.pin(None)
    state = request.request_state
    if isinstance(state, dict) and ASKING_TAB in state:
        return Target(state[ASKING_TAB])
    if named is not None:
        return named if requested is None else replace(named, pins=requested.pins)
    if requested is not None and requested.tab is not None:
        return requested
    pinned = request.caller.tab
    return Target(pinned, is_pinned=True) if pinned is not None else requested


def call_tool(
    listing: Listing, box: Toolbox, name: str, arguments: dict[str, Any], request: Request, named: Target | None
) -> RoutedRequest:
    """`named`: a tab that is not named in the tool's arguments."""
    entry = listing.find("tools", name)
    own_key = entry.own_key if entry else name
    arguments, by_argument = take_argument(arguments, entry.item["inputSchema"] if entry else None)

    def message(own_name: str) -> Message:
        return {"kind": "tools", "name": own_name, "arguments": arguments}

    target = choose_target(request, named or by_argument)
    return RoutedRequest("tools", name, "tools", target, message, partial(box.call, own_key, arguments), arguments)


def read_resource(listing: Listing, box: Toolbox, uri: str, request: Request) -> RoutedRequest | None:
    """None: no resource has the URI, and no template matches it."""
    found = find_resource(listing, uri)
    if found is None:
        return None
    kind, key, variables = found

    def message(own_key: str) -> Message:
        return {"kind": kind, "name": own_key, "uri": uri, "arguments": variables}

    return RoutedRequest(kind, key, kind, choose_target(request), message, partial(box.read, uri))


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


def get_prompt(box: Toolbox, name: str, arguments: Texts, request: Request) -> RoutedRequest:
    def message(own_name: str) -> Message:
        return {"kind": "prompts", "name": own_name, "arguments": arguments}

    return RoutedRequest(
        "prompts", name, "prompts", choose_target(request), message, partial(box.get_prompt, name, arguments)
    )


def complete(
    entry: ListedItem, box: Toolbox, kind: str, key: str, argument: str, typed: str, others: Texts, request: Request
) -> RoutedRequest:
    """Complete an argument of a prompt or a template. Raises Refusal for an argument that a tab's item does not
    have."""
    own = box.complete_prompt if kind == "prompts" else box.complete_resource
    if entry.tabs and argument not in _arguments(entry, kind):
        raise Refusal(
            INVALID_PARAMS, f'{"prompt" if kind == "prompts" else "resource"} {key} has no argument "{argument}"'
        )

    def message(own_key: str) -> Message:
        asked = {"argument": argument, "typed": typed, "arguments": others}
        return {"kind": "completion", "of": kind, "name": own_key, **asked}

    return RoutedRequest(
        kind, key, "completion", choose_target(request), message, partial(own, key, argument, typed, others)
    )


def _arguments(entry: ListedItem, kind: str) -> list[str]:
    if kind == "templates":
        return check_uri(entry.item["uriTemplate"])
    return [argument["name"] for argument in entry.item.get("arguments", ())]
