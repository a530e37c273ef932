"""Routing of a request to a tab or to the worker, and the errors of requests that reach none.

A request that names a tab, or whose caller pinned one, gets that tab or an error, never another tab. Worker tools
belong to no tab and are available whichever tab is named. Pure: listing, tabs and target in, destination out. It does
not wait, send or ask for approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..handlers.target import META_ERROR, Target
from ..handlers.tools import text_result
from ..rpc import Refusal
from ..wire.help_codes import BY_REASON
from ..wire.jsonrpc import INVALID_PARAMS
from .listing import KINDS, Listing
from .tab import Tab

RETRYABLE: Final = ("tab_frozen", "tab_left", "tab_silent", "approval_unseen", "approval_busy")
NOUNS: Final = {"tools": "tool", "resources": "resource", "templates": "resource template", "prompts": "prompt"}
assert NOUNS.keys() == KINDS.keys()
# By `is_frozen`: the text for people, and the `reason` for programs.
_STATES: Final = {True: ("is frozen by the browser", "tab_frozen"), False: ("does not answer", "tab_silent")}


class Destination(NamedTuple):
    """`tab`: None is the worker itself. `key`: the destination's own name for the item. `is_ready`: False while its
    page is loading. `has_rivals`: the request names no tab, and another tab that is awake offers the item too.
    """

    tab: Tab | None
    key: str
    is_ready: bool = True
    has_rivals: bool = False


class RoutingError(Exception):
    """A request that reached no tab or lost its tab. `reason` and `is_delivered` are for programs."""

    def __init__(self, text: str, reason: str, tab: Tab | None = None, *, is_delivered: bool | None = False) -> None:
        super().__init__(text)
        self.text, self.reason, self.tab, self.is_delivered = text, reason, tab, is_delivered

    @property
    def data(self) -> dict[str, Any]:
        """The same members as in the relay's errors. A call that may have been delivered must not be repeated."""
        delivered = "unknown" if self.is_delivered is None else "no"
        is_retryable = self.reason in RETRYABLE
        help = BY_REASON[self.reason]
        return {"reason": self.reason, "delivered": delivered, "retryable": is_retryable, "help": help}

    def result(self) -> dict[str, Any]:
        """The error as a tool result, which the model reads."""
        meta = {META_ERROR: self.data} | (self.tab.meta if self.tab else {})
        return text_result(self.text, is_error=True) | {"_meta": meta}

    def refusal(self, code: int = INVALID_PARAMS) -> Refusal:
        """The error as a JSON-RPC error, for methods whose results can't be errors, and for tasks."""
        data = self.data | ({"tab": self.tab.id} if self.tab else {})
        return Refusal(code, self.text, data)


def find_destination(
    listing: Listing,
    tabs: Mapping[str, Tab],
    departed: Mapping[str, str],
    kind: str,
    key: str,
    target: Target | None,
) -> Destination | None:
    """The destination of a request; None if the item is not listed. Raises RoutingError. `departed`: titles of tabs
    that are gone, by id."""
    entry = listing.find(kind, key)
    is_own = entry is not None and not entry.tabs
    if target is None or target.tab is None:
        if entry is None:
            return None
        if is_own:
            return Destination(None, entry.own_key)
        has_rivals = any(rival.is_awake and _is_ready(rival, kind, entry.own_key) for rival in entry.tabs[1:])
        return _in_tab(entry.tabs[0], kind, entry.own_key)._replace(has_rivals=has_rivals)
    tab = tabs.get(target.tab)
    if tab is not None and key in tab.offers[kind]:
        return _in_tab(tab, kind, key)
    if entry is None or is_own:
        if tab is None and entry is None:
            raise _tab_gone(target, tabs, departed)
        return Destination(None, entry.own_key) if entry is not None else None
    if tab is None:
        raise _tab_gone(target, tabs, departed)
    if tab in entry.tabs:
        return _in_tab(tab, kind, entry.own_key)
    others = ", ".join(f"{other.label} ({other.id})" for other in entry.tabs)
    which = "pinned tab" if target.is_pinned else "tab"
    text = f'The {which} {tab.label} does not offer the {NOUNS[kind]} "{key}". Tabs that do: {others}.'
    raise RoutingError(text, "tab_lacks_it", tab)


def tab_asleep(tab: Tab, key: str) -> RoutingError:
    """The tab is frozen or silent, and the call was not sent."""
    state, reason = _STATES[tab.is_frozen]
    text = f'The tab {tab.label} {state}, so "{key}" was not called. Bring it to the front and try again.'
    return RoutingError(text, reason, tab)


def silent_in_call(tab: Tab, key: str) -> RoutingError:
    state, reason = _STATES[tab.is_frozen]
    return _failed_in_call(tab, f"{state} while it runs", key, reason)


def gone_in_call(tab: Tab, key: str) -> RoutingError:
    return _failed_in_call(tab, "was closed or left while it ran", key, "tab_gone")


def tab_left(tab: Tab, key: str) -> RoutingError:
    """The page went away a moment ago and did not announce that it returns."""
    text = f'The tab {tab.label} was closed or is reloading, so "{key}" was not called. If it is open, try again.'
    return RoutingError(text, "tab_left", tab)


def tab_not_back(tab: Tab, key: str) -> RoutingError:
    """The page went away, and the item was not offered again in time."""
    text = f'The tab {tab.label} was left and does not offer "{key}" any more, so it was not called.'
    return RoutingError(text, "tab_gone", tab)


def changed_meanwhile(name: str) -> RoutingError:
    text = f'The definition of "{name}" changed, or another page offers it now. Try again. It was not run.'
    return RoutingError(text, "tab_gone")


def _in_tab(tab: Tab, kind: str, key: str) -> Destination:
    return Destination(tab, key, _is_ready(tab, kind, key))


def _is_ready(tab: Tab, kind: str, key: str) -> bool:
    return tab.port is not None and not tab.offers[kind][key].is_kept


def _failed_in_call(tab: Tab, what: str, key: str, reason: str) -> RoutingError:
    text = f'The tab {tab.label} {what} "{key}". Whether the call took effect is unknown.'
    return RoutingError(text, reason, tab, is_delivered=None)


def _tab_gone(target: Target, tabs: Mapping[str, Tab], departed: Mapping[str, str]) -> RoutingError:
    name = departed.get(str(target.tab))
    label = f"{name} ({target.tab})" if name else f'"{target.tab}"'
    there = [f"{tab.label} ({tab.id})" for tab in tabs.values()]
    rest = f" Open tabs: {', '.join(there[:10])}{', …' if len(there) > 10 else ''}." if there else " No tab is open."
    if target.is_pinned:
        return RoutingError(f"The pinned tab {label} is gone. Pin another tab, or none.{rest}", "tab_gone")
    what = "is gone" if name else "is not there"
    return RoutingError(f"The tab {label} {what}.{rest}", "tab_gone")
