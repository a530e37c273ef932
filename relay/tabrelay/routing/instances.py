"""Choice between several browsers that share one name: by tab, by session, or the one used last. Pure.

`/notes` is the browser that was used last, `/notes~laptop` a certain one. A legacy session stays with the browser of
its first call as long as that is connected: its tabs, its pin and its handlers' state exist in no other. The caller
reports which browsers are connected and which was used; the entries of the registry are in `shared_names`.
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
from tabserver.wire.names import INSTANCE_SEPARATOR
from tabserver.wire.static_tools import META_TAB, STATIC_NAMES, TAB_ARGUMENT

MAX_TABS: Final = 64  # of one browser; a longer list does not help to tell browsers apart
MAX_URL: Final = 500
MAX_TEXT: Final = 200
# Requests about a task, which one of the browsers has.
OF_TASKS: Final = frozenset(
    {
        methods.SUBSCRIPTIONS_LISTEN,
        methods.TASKS_GET,
        methods.TASKS_UPDATE,
        methods.TASKS_CANCEL,
        methods.TASKS_RESULT,
    }
)


@dataclass(frozen=True, slots=True)
class TabInfo:
    """A tab, as a browser's worker reports it to the relay."""

    id: str
    title: str
    is_visible: bool
    is_awake: bool = True  # False: the browser has frozen it, or it does not react
    url: str = ""  # without query and fragment


@dataclass(frozen=True, slots=True)
class TabRequest:
    """What a request implies about its browser. `session`: the channel of a legacy session. `named`: the tab that the
    request names; `pinned`: the tab that its caller has pinned; `home`: the browser that has the task it is about."""

    session: str | None = None
    named: str | None = None
    pinned: str | None = None
    home: str | None = None

    @classmethod
    def of(cls, call: Call) -> TabRequest:
        session = call.channel if call.caller.era is Era.LEGACY else None
        home = _home_of_task(call) if call.method in OF_TASKS else None
        return cls(session, _named_tab(call.payload), call.caller.tab, home)


ANY: Final = TabRequest()


class SharedName:
    """The browsers of one server, by their addresses."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._tabs: dict[str, frozenset[str]] = {}
        # By channel: the addresses that a session used. The last is current; at the others, calls may still be running.
        self._bindings: dict[str, dict[str, None]] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[str]:
        """The addresses of browsers that are connected or away for a moment."""
        return iter(self._used)

    def use(self, address: str) -> None:
        """The browser connected, its user turned to it, or a caller used it."""
        self._used[address] = next(self._numbers)

    def set_tabs(self, address: str, tabs: Iterable[str]) -> None:
        self._tabs[address] = frozenset(tabs)

    def remove(self, address: str) -> None:
        """The browser will not come back: sessions that were bound to it are not bound any more."""
        self._used.pop(address, None)
        self._tabs.pop(address, None)
        for channel, addresses in list(self._bindings.items()):
            addresses.pop(address, None)
            if not addresses:
                del self._bindings[channel]

    def front(self, is_up: Iterable[str]) -> str | None:
        """The browser that was used last: of those that are connected, or else of all."""
        up = [address for address in is_up if address in self._used]
        return max(up or self._used, key=self._used.__getitem__, default=None)

    def choose(self, request: TabRequest, is_up: Iterable[str]) -> str | None:
        """The browser for a request; None if there is no browser."""
        return (
            self._at(request.home)
            or self._with(request.named)
            or self.bound_to(request.session)
            or self._with(request.pinned)
            or self.front(is_up)
        )

    def _with(self, tab: str | None) -> str | None:
        return next((address for address, tabs in self._tabs.items() if tab in tabs), None) if tab else None

    def _at(self, home: str | None) -> str | None:
        end = None if home is None else f"{INSTANCE_SEPARATOR}{home}"
        return next((address for address in self._used if address.endswith(end)), None) if end else None

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
    """Does the call do work in the browser for a client? Listing what there is does not count."""
    return call.method not in QUICK and call.method != methods.SUBSCRIPTIONS_LISTEN and call.caller.principal != RELAY


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task of a worker. Times are in seconds since 1970."""

    id: str
    tool: str
    principal: str
    status: str
    created: float
    updated: float
    expires: float

    @property
    def is_over(self) -> bool:
        return self.status not in ("working", "input_required")

    def row(self, now: float) -> dict[str, Any]:
        """For the status."""
        return {
            "id": self.id,
            "tool": self.tool,
            "principal": self.principal,
            "status": self.status,
            "age_s": round(now - self.created, 1),
            "changed_s": round(now - self.updated, 1),
            "expires_in_s": round(self.expires - now, 1),
        }


@dataclass(frozen=True, slots=True)
class TabReport:
    """What a worker reports: its tabs, and how often its user turned to one.

    `is_in_use`: a tab is reloading, a task runs, or a call waits for its client's answer. `is_awake`: can a tab answer?
    None: not known.
    """

    tabs: tuple[TabInfo, ...]
    focus_count: int
    is_in_use: bool = False
    is_awake: bool | None = None
    tasks: tuple[TaskInfo, ...] = ()


def read_tabs(params: object) -> TabReport | None:
    """The report of a worker; None if the message is malformed."""
    if not isinstance(params, dict) or not isinstance(params.get("tabs"), list):
        return None
    tabs = [_tab(row) for row in params["tabs"][:MAX_TABS] if isinstance(row, dict)]
    used, parked = params.get("used"), params.get("parked")
    known = tuple(tab for tab in tabs if tab.id)
    given = params.get("tasks")
    tasks = tuple(filter(None, map(_task, given[:MAX_TABS]))) if isinstance(given, list) else ()
    return TabReport(
        known,
        used if isinstance(used, int) else 0,
        (isinstance(parked, int) and parked > 0)
        or params.get("returning") is True
        or any(not task.is_over for task in tasks),
        any(tab.is_awake for tab in known),
        tasks,
    )


def _task(row: object) -> TaskInfo | None:
    if not isinstance(row, dict):
        return None
    texts = [row.get(key) for key in ("id", "tool", "principal", "status")]
    times = [row.get(key) for key in ("created_ms", "updated_ms", "expires_ms")]
    if not all(isinstance(text, str) for text in texts) or not all(type(time) is int for time in times):
        return None
    id, tool, principal, status = (str(text)[:MAX_TEXT] for text in texts)
    created, updated, expires = (int(time or 0) / 1000 for time in times)
    return TaskInfo(id, tool, principal, status, created, updated, expires)


def _tab(row: dict[str, Any]) -> TabInfo:
    id, title, url = row.get("id"), row.get("title"), row.get("url")
    return TabInfo(
        id[:MAX_TEXT] if isinstance(id, str) else "",
        title[:MAX_TEXT] if isinstance(title, str) else "",
        row.get("visible") is True,
        row.get("awake") is not False,
        url[:MAX_URL] if isinstance(url, str) else "",
    )


def _home_of_task(call: Call) -> str | None:
    """The browser in the id of the task, which its worker wrote there."""
    if INSTANCE_SEPARATOR not in call.payload:
        return None
    params = call.message().get("params")
    params = params if isinstance(params, dict) else {}
    wanted = params.get("notifications")
    ids = wanted.get("taskIds") if isinstance(wanted, dict) else None
    id = ids[0] if isinstance(ids, list) and ids else params.get("taskId")
    return (id.rpartition(INSTANCE_SEPARATOR)[2] or None) if isinstance(id, str) and INSTANCE_SEPARATOR in id else None


def _named_tab(payload: str) -> str | None:
    """The tab that a request names, in `_meta` or in its arguments. The worker refuses invalid values."""
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
