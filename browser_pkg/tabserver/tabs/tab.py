"""Browser tab that is attached to the worker, its offers, and the window of messages that it has not read.

`TabReadState` counts unread messages for `liveness`; js/worker/granted_calls.js counts the same, and both sides
must agree. Values only: `offers` checks what a page may offer, and `routing` chooses the tab of a call.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..handlers.identity import NO_IDENTITY, ServerIdentity
from ..wire.static_tools import META_TAB
from .offers import Item

Message = Mapping[str, Any]

# How long a message of a page proves that the page reads, and the most unread calls in it while another tab could take
# them. Both are in js/worker/granted_calls.js too.
FRESH_MS: Final = 100.0
WINDOW: Final = 64
MAX_UNREAD: Final = 4096  # messages whose ids are kept for each tab


class PagePort(Protocol):
    """Port to one page. `reads_requests`: the page reads a tool's arguments from the caller's request text."""

    reads_requests: bool

    def send(self, message: Message) -> None: ...
    def post(self, json: str) -> None:
        """Send a message that is JSON text already."""

    def allow(self, number: int, channel: str, members: str, meta: str, has_rivals: bool) -> None:
        """Let JavaScript carry out calls like the one on this channel: see worker/js_calls.py."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One item that a tab offers. `since`: when the page first offered it; the page keeps this time, so after a crash
    of the worker the first offer is still the first. `fingerprint`: the same for equal definitions. `is_kept`: its page
    is reloading, so it is still listed, but can't be called before it is offered again.
    """

    item: Item
    since: float
    fingerprint: str
    is_kept: bool = False


@dataclass(slots=True)
class TabReadState:
    """Whether a page reads its messages: see liveness.py. js/worker/granted_calls.js counts the same.

    `unread`: calls (and pings: True) that the page may not have read yet, in the order in which they were posted. A
    page reads in this order, so its answer to one of them proves that it has read all before that one. `pings`: how
    many of them are pings. `window`: how many of them may be calls while another tab could take the next one.
    `is_awaited`: a call has waited for a message of the page since `asked_ms`. `is_timed`: a timer runs that ends the
    wait.
    """

    received_ms: float = -math.inf
    window: int = 1
    unread: dict[str, bool] = field(default_factory=dict)
    pings: int = 0
    is_awaited: bool = False
    asked_ms: float = -math.inf
    is_timed: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def has_room(self, now_ms: float) -> bool:
        """May one more call be posted to the page, although another tab could take it?"""
        # defence: a busy tab: a tab has a window of unread calls
        # defence: a busy tab: a tab that was silent gets no call
        return len(self.unread) - self.pings < self.window and 0 <= now_ms - self.received_ms <= FRESH_MS

    def posted(self, call: str) -> None:
        """Count a call that was posted to the page. Above MAX_UNREAD unanswered messages, the oldest are dropped."""
        self._add(call, is_ping=False)

    def pinged(self) -> None:
        self._add(f"ping {next(self._numbers)}", is_ping=True)

    def _add(self, name: str, is_ping: bool) -> None:
        self.unread[name] = is_ping
        self.pings += is_ping
        if len(self.unread) > MAX_UNREAD:
            self.pings -= self.unread.pop(next(iter(self.unread)))

    def received(self, now_ms: float, call: str | None = None) -> None:
        """The page sent a message, possibly about that call. After a pause the window starts again at one call."""
        if not 0 <= now_ms - self.received_ms <= FRESH_MS:
            # defence: a busy tab: the window is one call after a pause
            self.window = 1
        self.received_ms = now_ms
        if call is not None and call in self.unread:
            self._read(call)

    def update(self, received_ms: float, window: int) -> None:
        """Take over from JavaScript when the page last sent a message, and how many calls it may have unread."""
        self.received_ms, self.window = max(self.received_ms, received_ms), window

    def received_pong(self) -> None:
        """The page answered the oldest ping."""
        ping = next((name for name, is_ping in self.unread.items() if is_ping), None)
        if ping is not None:
            self._read(ping)

    def _read(self, upto: str) -> None:
        # The page read on with a full window of calls, so it may get one more.
        if len(self.unread) - self.pings >= self.window:
            # defence: a busy tab: the window has a limit
            self.window = min(self.window + 1, WINDOW)
        name = ""
        # defence: a busy tab: an answer shows what came before it, and no more
        while name != upto:
            name = next(iter(self.unread))
            self.pings -= self.unread.pop(name)


@dataclass(slots=True, eq=False)
class Tab:
    """A browser tab, with an id that survives reloads. `port`: None while its page reloads. `touched`: a number that
    grows each time a tab is shown, hidden or focused.

    `is_frozen`: the page reported that the browser freezes it. `is_silent`: it did not answer the liveness ping.
    `is_busy`: it did not answer a ping for a moment, so other tabs are preferred. `offers`: its items of each kind, by
    name or URI.
    """

    port: PagePort | None
    id: str
    title: str
    url: str
    is_visible: bool
    touched: int
    attached: int
    is_frozen: bool = False
    is_silent: bool = False
    is_busy: bool = False
    read_state: TabReadState = field(default_factory=TabReadState)
    # The page announced that it reloads or navigates within this origin: the next page attaches in a moment.
    is_expected: bool = False
    # How often its page went away: a timer for a return must not mistake a later absence for this one.
    leaves: int = 0
    # Which of its tools ask before they run: "destructive", "all", "none", or their names.
    approve: str | frozenset[str] = "destructive"
    # What its page says of the server.
    identity: ServerIdentity = NO_IDENTITY
    # Does its page want a message about every call? Most pages do not.
    watches: bool = True
    # Calls that were sent to it and are not over.
    calls: int = 0
    offers: dict[str, dict[str, Offer]] = field(default_factory=lambda: defaultdict(dict))
    _meta: dict[str, Any] = field(default_factory=dict)

    @property
    def meta(self) -> dict[str, Any]:
        """Its id and title, for the `_meta` of its results. The same object while the title stays."""
        if not self._meta or self._meta[META_TAB]["title"] != self.title:
            self._meta = {META_TAB: {"id": self.id, "title": self.title}}
        return self._meta

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, int, int]:
        """Sort key for a call that several tabs could take: the visible tab, else the one that was visible last."""
        return self.port is not None, self.is_awake, not self.is_busy, self.is_visible, self.touched, self.attached

    @property
    def is_awake(self) -> bool:
        return not (self.is_frozen or self.is_silent)

    @property
    def label(self) -> str:
        return f'"{self.title}"' if self.title else self.url or self.id

    def send(self, message: Message) -> None:
        """Send a message to the tab's page, if it has one."""
        if self.port is not None:
            self.port.send(message)

    def post(self, call: str, json: str) -> None:
        """Send a call as JSON text, and count it as unread."""
        if self.port is not None:
            self.read_state.posted(call)
            self.port.post(json)

    def ping(self) -> None:
        if self.port is not None:
            self.read_state.pinged()
            self.port.post('{"t":"ping"}')  # js/worker/python_bridge.js looks for this text


def fingerprint_of(item: Item) -> str:
    """A hash that is the same for equal definitions, whatever the order of their members."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
