"""Peer for a browser that is connected to another relay of the same bus.

The state of a call stays at this relay, which has its HTTP request; the other relay only forwards. When the browser
moves to a third relay, its calls are sent again there, to the same worker, whose request history recognises those that
it has run. `BrowserLocator` finds the relay; `ReplyInbox` receives the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bus.bus import BusDown
from tabrelay.bus.errors import unreachable
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import Notice, Pending
from tabrelay.calls.peer import PeerKind
from tabrelay.errors import BadRequest, BrowserGone, RelayError
from tabserver.wire import methods
from tabserver.wire.frames import Caller
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.pending_calls import PendingCalls

# After this, a bus with a full queue has sent part of it.
PAUSE_S: Final = 0.5

Key = tuple[str, RequestId]


@dataclass(frozen=True, slots=True)
class BrowserLocation:
    """Where a browser is connected, as announced by its relay. `gen`: the larger is the newer one. `inst`: a hash that
    identifies the worker without naming it. `principal`: the owner."""

    address: str
    node: str
    gen: int
    inst: str
    principal: str
    browser: str = ""

    @classmethod
    def read(cls, row: dict[str, Any]) -> BrowserLocation | None:
        texts = [row.get(key) for key in ("a", "node", "inst", "who", "browser")]
        gen = row.get("gen")
        if not isinstance(gen, int) or not all(isinstance(text, str) for text in texts):
            return None
        address, node, inst, principal, browser = (str(text) for text in texts)
        return cls(address, node, gen, inst, principal, browser)

    def to_dict(self) -> dict[str, Any]:
        return {
            "a": self.address,
            "node": self.node,
            "gen": self.gen,
            "inst": self.inst,
            "who": self.principal,
            "browser": self.browser,
        }

    def beats(self, other: BrowserLocation) -> bool:
        """Of two holders of one name, does this one keep it? The newer one does, as on a single relay. But among
        different principals the older one does, so that no page loses its name to a page of another principal."""
        if self.principal != other.principal:
            return (self.gen, self.node) < (other.gen, other.node)
        return (self.gen, self.node) > (other.gen, other.node)


class RemotePeer:
    """One browser session at another relay. A new session is a new RemotePeer."""

    def __init__(
        self,
        place: BrowserLocation,
        cluster: Membership,
        pending_calls: PendingCalls[Pending],
        on_refused: Callable[..., None],
    ) -> None:
        """`on_refused(peer, pending)`: the other relay is not on the bus, so the call was certainly not delivered."""
        self.location = place
        self.principal = place.principal
        self.is_connected = True
        self.is_reserved = True  # announced by its relay: is the name kept for its principal?
        self._cluster = cluster
        self._pending_calls = pending_calls
        self._on_refused = on_refused
        self._sinks: dict[str, Callable[[Notice], None]] = {}
        self._deliveries: dict[Key, Callable[[], None]] = {}
        self._is_closed = False

    @property
    def kind(self) -> PeerKind:
        return PeerKind.NODE

    @property
    def origin(self) -> str | None:
        return None

    @property
    def is_releasable(self) -> bool:
        return False  # its relay decides: see `NameRelease`

    @property
    def identity(self) -> str | None:
        return self.location.inst

    @property
    def browser(self) -> str:
        return self.location.browser

    @property
    def is_up(self) -> bool:
        return self.is_connected and self._cluster.is_up

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        return []  # its relay ends it

    @property
    def in_flight(self) -> int:
        return sum(pending.call.method != methods.SUBSCRIPTIONS_LISTEN for pending in self._pending_calls.values())

    def start(self, pending: Pending) -> None:
        call = pending.call
        if (call.channel, call.id) in self._pending_calls:
            raise BadRequest(f"Request id {call.id!r} is still in use in this session.", reason="duplicate_id")
        if pending.asked_of not in (None, self.location.inst):
            raise BrowserGone(f'Another browser took over "{self.location.address}" while it had the call.')
        self._send_request(pending, lambda: self._on_refused(self, pending))
        self._pending_calls[call.channel, call.id] = pending

    def resend(self, pending: Pending) -> None:
        """Send a call again that this browser may have received before, over another relay.

        If its relay is not on the bus, or this one is not, the call may still run there, and the replies that the relay
        keeps for it arrive before any announcement. So it stays in the table, where a reply finds it. It is sent again
        when either relay is back, and fails when the relay is lost. A call that ended meanwhile is cancelled.
        """
        if pending.is_done:
            self.cancel(pending, "its caller no longer waits")
            return
        pending.asked_of = self.location.inst
        try:
            self._send_request(pending, lambda: None)
        except RelayError:
            if self._cluster.is_up:
                asyncio.get_running_loop().call_later(PAUSE_S, self._resend_later, pending)

    def _resend_later(self, pending: Pending) -> None:
        """The bus queue was full. Try again, if no other peer got the call meanwhile."""
        key = (pending.call.channel, pending.call.id)
        if not self._is_closed and self._pending_calls.get(key) is pending and key not in self._deliveries:
            self.resend(pending)

    def resend_rest(self) -> None:
        """Send the calls that this browser got before it was known to be at this location."""
        for key, pending in list(self._pending_calls.items()):
            if key not in self._deliveries:
                self.resend(pending)

    def resend_all(self, calls: list[Pending]) -> None:
        """Send those of these calls again that still wait."""
        for pending in calls:
            if self._pending_calls.get((pending.call.channel, pending.call.id)) is pending:
                self.resend(pending)

    def _send_request(self, pending: Pending, on_no_node: Callable[[], None]) -> None:
        call = pending.call
        key = (call.channel, call.id)
        header = {
            "op": "call",
            "a": self.location.address,
            "gen": self.location.gen,
            "c": call.channel,
            "i": call.id,
            "m": call.method,
            "o": call.caller.to_dict(),
            "again": pending.asked_of,
        }
        self.end_delivery(key)
        try:
            self._deliveries[key] = self._cluster.send_or_report(self.location.node, header, call.payload, on_no_node)
        except BusDown:
            raise unreachable() from None

    def end_delivery(self, key: Key) -> None:
        """Stop waiting for the report that the relay of this call is not on the bus."""
        close = self._deliveries.pop(key, None)
        if close is not None:
            close()

    def close(self) -> None:
        """The browser has moved to another relay, and its calls with it."""
        self._is_closed = True
        for key in list(self._deliveries):
            self.end_delivery(key)

    def cancel(self, pending: Pending, why: str) -> None:
        call = pending.call
        self.end_delivery((call.channel, call.id))
        if self._pending_calls.pop((call.channel, call.id), None) is not None:
            self._send({"op": "cancel", "c": call.channel, "i": call.id, "why": why})

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        self._send({"op": "say", "c": channel, "o": caller.to_dict()}, payload)

    def notify_late(self, channel: str, caller: Caller, payload: str) -> None:
        """Pass on a notification for this browser from when it was at this relay. The session may be at a third
        relay."""
        self._send({"op": "say", "c": channel, "o": caller.to_dict(), "late": True}, payload)

    def end(self, channel: str, why: str) -> None:
        self._sinks.pop(channel, None)
        self._send({"op": "end", "c": channel, "why": why})

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self._sinks[channel] = sink
        self._send({"op": "listen", "c": channel, "o": caller.to_dict()})

    def receive(self, channel: str, payload: str) -> None:
        """Pass on a message of the server that belongs to no request."""
        sink = self._sinks.get(channel)
        if sink is not None:
            sink(Notice(payload))

    def _send(self, header: dict[str, Any], payload: str | None = None) -> None:
        """Send a message without an answer, with redelivery: its loss would not be noticed otherwise."""
        self._cluster.send_reliably(self.location.node, {**header, "a": self.location.address}, payload)

    @property
    def is_idle(self) -> bool:
        """Has it neither a listening session nor a call?"""
        return not self._sinks and not len(self._pending_calls)
