"""A page that is attached to the worker, as a value. What it may offer is in `offers`, who gets a call in `places`."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from .offers import Item

Message = Mapping[str, Any]

# How long a message of a page shows that the page reads, and the most calls that may lie unread in it while another tab
# could take them. Both are in js/worker/granted_calls.js too.
FRESH_MS: Final = 100.0
WINDOW: Final = 64
MAX_UNREAD: Final = 4096  # names of messages that are kept for each tab


class PagePort(Protocol):
    """The way to one page. `reads_requests`: it finds a tool's arguments in its caller's request."""

    reads_requests: bool

    def send(self, message: Message) -> None: ...
    def post(self, json: str) -> None:
        """The same, of a message that is JSON text already."""

    def allow(self, number: int, channel: str, members: str, meta: str, has_rivals: bool) -> None:
        """Calls like that on this channel need not be asked about: see express.py."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that a tab has. `since`: when the page first offered it; it outlives the worker, so that after a crash
    the first is still the first. `mark`: the same for equal definitions. `is_kept`: its page is being loaded again, so
    it is still listed, but can't be had before it is offered again.
    """

    item: Item
    since: float
    fingerprint: str
    is_kept: bool = False


@dataclass(slots=True)
class TabReadState:
    """What shows that a page reads what it is sent: see responsiveness.py. js/worker/granted_calls.js counts the same.

    `unread`: calls (and pings: True) that the page may not have read yet, in the order in which they were posted. A
    page reads in this order, so its answer to one of them shows that it has read all before that one. `pings`: how many
    of them are pings. `window`: how many of them may be calls while another tab could take the next one.
    `is_awaited`: a call waits for a sign of the page, since `asked_ms`. `is_timed`: a timer runs that ends the wait.
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
        """Count a call that was posted to the page. Of too many that it never answers, the oldest are forgotten."""
        self._add(call, is_ping=False)

    def pinged(self) -> None:
        self._add(f"ping {next(self._numbers)}", is_ping=True)

    def _add(self, name: str, is_ping: bool) -> None:
        self.unread[name] = is_ping
        self.pings += is_ping
        if len(self.unread) > MAX_UNREAD:
            self.pings -= self.unread.pop(next(iter(self.unread)))

    def received(self, now_ms: float, call: str | None = None) -> None:
        """The page said something, of that call perhaps. After a pause nothing is known of how much it can take."""
        if not 0 <= now_ms - self.received_ms <= FRESH_MS:
            # defence: a busy tab: the window is one call after a pause
            self.window = 1
        self.received_ms = now_ms
        if call is not None and call in self.unread:
            self._read(call)

    def received_pong(self) -> None:
        """It answers the oldest ping."""
        ping = next((name for name, is_ping in self.unread.items() if is_ping), None)
        if ping is not None:
            self._read(ping)

    def _read(self, upto: str) -> None:
        # It has read on with so many calls before it. So it may get one more.
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
    """A browser's tab, by the id that it keeps over reloads. `port`: None while its page is being loaded again.
    `touched` says when it was last shown, hidden or focused.

    `is_frozen`: it said that the browser stops it; `is_silent`: it was asked whether it lives and did not answer.
    `is_busy`: it did not answer for a moment, so other tabs come first. `offers`: what it has of each kind, by name or
    URI.
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
    # Its page was left for another one of this origin, which will attach in a moment.
    is_expected: bool = False
    # How often its page was left: whoever waits for its return must not take a later absence for this one.
    leaves: int = 0
    # Which of its tools ask before they run: "destructive", "all", "none", or their names.
    approve: str | frozenset[str] = "destructive"
    # Does its page want to hear of every call? Most have nobody who listens.
    watches: bool = True
    # How many calls it has been sent that are not over.
    calls: int = 0
    offers: dict[str, dict[str, Offer]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, int, int]:
        """Which tab gets a call that several could take: the one the user sees, else the one seen last."""
        return self.port is not None, self.is_awake, not self.is_busy, self.is_visible, self.touched, self.attached

    @property
    def is_awake(self) -> bool:
        return not (self.is_frozen or self.is_silent)

    @property
    def label(self) -> str:
        return f'"{self.title}"' if self.title else self.url or self.id

    def send(self, message: Message) -> None:
        """To its page, if it has one."""
        if self.port is not None:
            self.port.send(message)

    def post(self, call: str, json: str) -> None:
        """The same, of a call as JSON text."""
        if self.port is not None:
            self.read_state.posted(call)
            self.port.post(json)

    def ping(self) -> None:
        if self.port is not None:
            self.read_state.pinged()
            self.port.post('{"t":"ping"}')  # js/worker/python_bridge.js looks for this text


def fingerprint_of(item: Item) -> str:
    """The same for equal definitions, in whatever order their members come."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
