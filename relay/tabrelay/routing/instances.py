"""Several browsers under one name: which of them gets a call. Pure: it is told who is there and who was used.

`/notes` means the browser that was used last, `/notes~laptop` one of them. A handshake session stays with the browser
that it began with for as long as that is there: its tabs, its pin and what handlers keep for it are in no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tabrelay.calls.calls import QUICK, Call
from tabserver.wire import methods
from tabserver.wire.control_messages import RELAY
from tabserver.wire.eras import Era
from tabserver.wire.static_tools import META_TAB, STATIC_NAMES, TAB_ARGUMENT

MAX_TABS: Final = 64  # of one browser; more of them tell nobody who is who
MAX_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class TabInfo:
    """A tab, as a browser's worker tells the relay of it."""

    id: str
    title: str
    is_visible: bool


@dataclass(frozen=True, slots=True)
class TabRequest:
    """Who asks, and for what. `session`: the channel of a handshake session. `named`: the tab that the request names;
    `pinned`: the one that its caller has pinned."""

    session: str | None = None
    named: str | None = None
    pinned: str | None = None

    @classmethod
    def of(cls, call: Call) -> TabRequest:
        session = call.channel if call.caller.era is Era.LEGACY else None
        return cls(session, _named_tab(call.payload), call.caller.tab)


ANY: Final = TabRequest()


class SharedName:
    """The browsers of one server, by their addresses."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._tabs: dict[str, frozenset[str]] = {}
        # By channel: where a session is, and before that where it was and may still have something running.
        self._bindings: dict[str, dict[str, None]] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[str]:
        """Those that are there."""
        return iter(self._used)

    def use(self, address: str) -> None:
        """It came, its user turned to it, or somebody called it."""
        self._used[address] = next(self._numbers)

    def set_tabs(self, address: str, tabs: Iterable[str]) -> None:
        self._tabs[address] = frozenset(tabs)

    def remove(self, address: str) -> None:
        """It is gone for good: whoever sat there sits nowhere."""
        self._used.pop(address, None)
        self._tabs.pop(address, None)
        for channel, addresses in list(self._bindings.items()):
            addresses.pop(address, None)
            if not addresses:
                del self._bindings[channel]

    def front(self, is_up: Iterable[str]) -> str | None:
        """Of those that can take a call now, or else of all that are there, the one that was used last."""
        up = [address for address in is_up if address in self._used]
        return max(up or self._used, key=self._used.__getitem__, default=None)

    def choose(self, request: TabRequest, is_up: Iterable[str]) -> str | None:
        """The browser for a request; None if there is none at all."""
        return (
            self._with(request.named)
            or self.bound_to(request.session)
            or self._with(request.pinned)
            or self.front(is_up)
        )

    def _with(self, tab: str | None) -> str | None:
        return next((address for address, tabs in self._tabs.items() if tab in tabs), None) if tab else None

    def bound_to(self, channel: str | None) -> str | None:
        addresses = self._bindings.get(channel) if channel is not None else None
        return next(reversed(addresses)) if addresses else None

    def bindings(self, channel: str) -> list[str]:
        return list(self._bindings.get(channel, ()))

    def bind(self, channel: str, address: str) -> None:
        addresses = self._bindings.setdefault(channel, {})
        addresses.pop(address, None)
        addresses[address] = None

    def unbind(self, channel: str) -> None:
        """The session has ended."""
        self._bindings.pop(channel, None)


def counts_as_use(call: Call) -> bool:
    """Does it do something in the browser, for somebody? To ask what there is does not."""
    return call.method not in QUICK and call.method != methods.SUBSCRIPTIONS_LISTEN and call.caller.principal != RELAY


def read_tabs(params: object) -> tuple[tuple[TabInfo, ...], int] | None:
    """What a worker says of its tabs, and how often its user turned to one; None if it is no such thing."""
    if not isinstance(params, dict) or not isinstance(params.get("tabs"), list):
        return None
    tabs = [_tab(row) for row in params["tabs"][:MAX_TABS] if isinstance(row, dict)]
    used = params.get("used")
    return tuple(tab for tab in tabs if tab.id), used if isinstance(used, int) else 0


def _tab(row: dict[str, Any]) -> TabInfo:
    id, title = row.get("id"), row.get("title")
    return TabInfo(
        id[:MAX_TEXT] if isinstance(id, str) else "",
        title[:MAX_TEXT] if isinstance(title, str) else "",
        row.get("visible") is True,
    )


def _named_tab(payload: str) -> str | None:
    """The tab that a request names, whichever way. What makes no sense is the worker's to refuse."""
    if META_TAB not in payload and TAB_ARGUMENT not in payload and '"tab"' not in payload:
        return None
    params = orjson.loads(payload).get("params")
    if not isinstance(params, dict):
        return None
    meta, arguments = params.get("_meta"), params.get("arguments")
    named: object = meta.get(META_TAB) if isinstance(meta, dict) else None
    if isinstance(named, dict):
        named = named.get("id")
    if named is None and isinstance(arguments, dict):
        named = arguments.get("tab" if params.get("name") in STATIC_NAMES else TAB_ARGUMENT)
    return named if isinstance(named, str) and named else None
