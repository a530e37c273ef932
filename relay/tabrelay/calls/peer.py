"""Protocols around a call: the face that it belongs to, the peer that runs it, and what records it.

Only interfaces: faces, peers and observers implement them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

from tabrelay.calls.calls import Call, Header, Notice, Pending, Reply, Response
from tabrelay.errors import RelayError
from tabserver.wire.frames import Caller


class CallOwner(Protocol):
    """The face that a call belongs to. One owner may have many calls: it gets the call with each event."""

    def may_be_cached(self, method: str) -> bool:
        """Are there cached replies to such calls, for a server that disconnects or times out before it replies?"""

    def cached_reply(self, call: Call) -> str | None: ...

    def sending(self, pending: Pending, peer: Peer) -> None:
        """The call is about to be sent to this peer."""

    def pinned(self, call: Call, tab: str | None) -> None:
        """The server pins the caller's later requests to one tab, or to none."""

    def ended(self, pending: Pending) -> None: ...

    def response(self, pending: Pending, reply: Reply) -> Response:
        """Status, headers and body of a complete response. Raises RelayError."""

    @property
    def stream_headers(self) -> tuple[Header, ...] | None:
        """Headers of a response whose events have no ids and need no record; None if only `respond` can stream."""

    async def respond(self, exchange: Any, pending: Pending) -> None:
        """Write the response to an exchange (`http.exchange`), as a stream if necessary."""


class CallObserver(Protocol):
    """Records or counts calls. Must not block."""

    def record(self, server: str, call: Call, took_s: float, outcome: RelayError | tuple[int | None, str]) -> None: ...


class PeerKind(StrEnum):
    """What is behind a peer."""

    BROWSER = "browser"  # a worker on the link of this relay
    PLAIN = "plain"  # a page with a plain MCP WebSocket
    NODE = "node"  # a browser of another relay
    UPSTREAM = "upstream"  # a child process or a URL


class Peer(Protocol):
    """Connection to one MCP server. The registry holds one for each name; faces reach it through the switch only."""

    @property
    def kind(self) -> PeerKind: ...

    @property
    def principal(self) -> str | None:
        """The principal that holds the name with it; None for an upstream."""

    @property
    def identity(self) -> str | None:
        """The same for all sessions of one worker; None for a peer whose calls can't be resumed."""

    @property
    def browser(self) -> str:
        """The name of the browser, such as Firefox; empty if there is none."""

    @property
    def is_reserved(self) -> bool:
        """L8: is the name kept for its principal?"""

    @property
    def origin(self) -> str | None:
        """The origin of the pages that it serves; None if that is not known here."""

    @property
    def is_releasable(self) -> bool:
        """May another page get the name, although it is up, when no tab offers anything? Not while a client's call
        runs."""

    @property
    def is_up(self) -> bool:
        """Can a call be started right now?"""

    @property
    def in_flight(self) -> int: ...

    def start(self, pending: Pending) -> None:
        """Start a call. Raises a RelayError if nothing was sent."""

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        """Another peer has the name now. Returns notifications that the browser did not acknowledge, if `successor` is
        the identity of the same browser at another relay: channel, caller and text."""

    def cancel(self, pending: Pending, why: str) -> None:
        """The caller is gone or waited too long: notify the server, expect no reply."""

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        """A client's notification or response on a session's channel."""

    def end(self, channel: str, why: str) -> None:
        """A session's channel ends."""

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        """Send notices that belong to no request to `sink`, until the channel ends. Opens the channel if necessary."""
