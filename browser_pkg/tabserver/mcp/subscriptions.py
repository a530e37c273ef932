"""Filter of `subscriptions/listen`: which changes a caller is notified of.

A caller gets only what it asked for. The subscriptions of handshake sessions are in `sessions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..rpc import Refusal
from ..wire.jsonrpc import INVALID_PARAMS, show

# The lists that can change, and their names in a filter.
LISTS: Final = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
MOST_URIS: Final = 1000


@dataclass(frozen=True, slots=True)
class SubscribedTo:
    """The lists and resources of one subscription."""

    lists: frozenset[str]
    uris: frozenset[str]

    def honoured(self) -> dict[str, Any]:
        """The filter as it is applied: what was asked for and is known."""
        kept: dict[str, Any] = {LISTS[name]: True for name in LISTS if name in self.lists}
        return kept | ({"resourceSubscriptions": sorted(self.uris)} if self.uris else {})


def read_wanted(params: dict[str, Any]) -> SubscribedTo:
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise Refusal(INVALID_PARAMS, f"params.notifications: expected object, got {show(asked)}")
    for flag in LISTS.values():
        if not isinstance(asked.get(flag, False), bool):
            raise Refusal(INVALID_PARAMS, f"params.notifications.{flag}: expected boolean, got {show(asked[flag])}")
    uris = asked.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise Refusal(INVALID_PARAMS, "params.notifications.resourceSubscriptions: expected an array of strings")
    if len(uris) > MOST_URIS:
        raise Refusal(INVALID_PARAMS, f"params.notifications.resourceSubscriptions: at most {MOST_URIS:,} URIs")
    return SubscribedTo(frozenset(name for name, flag in LISTS.items() if asked.get(flag)), frozenset(uris))
