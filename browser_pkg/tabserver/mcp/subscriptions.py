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
MOST_TASKS: Final = 256


@dataclass(frozen=True, slots=True)
class SubscribedTo:
    """The lists, resources and tasks of one subscription."""

    lists: frozenset[str]
    uris: frozenset[str]
    tasks: frozenset[str] = frozenset()

    def honoured(self) -> dict[str, Any]:
        """The filter as it is applied: what was asked for and is known."""
        kept: dict[str, Any] = {LISTS[name]: True for name in LISTS if name in self.lists}
        kept |= {"resourceSubscriptions": sorted(self.uris)} if self.uris else {}
        return kept | ({"taskIds": sorted(self.tasks)} if self.tasks else {})


def read_wanted(params: dict[str, Any]) -> SubscribedTo:
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise Refusal(INVALID_PARAMS, f"params.notifications: expected object, got {show(asked)}")
    for flag in LISTS.values():
        if not isinstance(asked.get(flag, False), bool):
            raise Refusal(INVALID_PARAMS, f"params.notifications.{flag}: expected boolean, got {show(asked[flag])}")
    lists = frozenset(name for name, flag in LISTS.items() if asked.get(flag))
    uris = _read_texts(asked, "resourceSubscriptions", MOST_URIS)
    return SubscribedTo(lists, uris, _read_texts(asked, "taskIds", MOST_TASKS))


def _read_texts(asked: dict[str, Any], name: str, most: int) -> frozenset[str]:
    given = asked.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Refusal(INVALID_PARAMS, f"params.notifications.{name}: expected an array of strings")
    if len(given) > most:
        raise Refusal(INVALID_PARAMS, f"params.notifications.{name}: at most {most:,} of them")
    return frozenset(given)
