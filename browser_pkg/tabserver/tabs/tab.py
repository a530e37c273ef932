"""A page that is attached to the worker, as a value. What it may offer is in `offers`, who gets a call in `places`."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .offers import Item

Message = Mapping[str, Any]


class PagePort(Protocol):
    """The way to one page. `reads_requests`: it finds a tool's arguments in its caller's request."""

    reads_requests: bool

    def send(self, message: Message) -> None: ...
    def post(self, json: str) -> None:
        """The same, of a message that is JSON text already."""

    def allow(self, number: int, channel: str, words: str, meta: str, has_rivals: bool) -> None:
        """Calls like that on this channel need not be asked about: see express.py."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that a tab has. `since`: when the page first offered it; it outlives the worker, so that after a crash
    the first is still the first. `mark`: the same for equal definitions. `is_kept`: its page is being loaded again, so
    it is still listed, but can't be had before it is offered again.
    """

    item: Item
    since: float
    mark: str
    is_kept: bool = False


@dataclass(slots=True)
class Signs:
    """What shows that a page reads what it is sent: see responsiveness.py. `is_current`: it has answered all that it
    was sent. `is_ping_last`: the last thing that it was sent is a ping. `is_awaited`: a call waits for a sign of it,
    since `asked_ms`. `is_timed`: a timer runs that ends the wait.
    """

    heard_ms: float = -math.inf
    is_current: bool = False
    pings: int = 0
    pongs: int = 0
    is_ping_last: bool = False
    is_awaited: bool = False
    asked_ms: float = -math.inf
    is_timed: bool = False


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
    signs: Signs = field(default_factory=Signs)
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

    def post(self, json: str) -> None:
        """The same, of a call as JSON text."""
        if self.port is not None:
            self.was_sent_a_call()
            self.port.post(json)

    def ping(self) -> None:
        if self.port is not None:
            self.signs.pings += 1
            self.signs.is_ping_last, self.signs.is_current = True, False
            self.port.send({"t": "ping"})

    def was_sent_a_call(self) -> None:
        # defence: a busy tab: a call shows nothing until it is answered
        self.signs.is_ping_last = self.signs.is_current = False


def mark_of(item: Item) -> str:
    """The same for equal definitions, in whatever order their members come."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
