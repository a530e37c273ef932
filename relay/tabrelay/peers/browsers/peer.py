"""Peer for a browser worker: sends calls over a link and resolves them with the worker's responses.

A call that was sent may have run. So it is sent again to the same worker only, whose request history recognises it, and
fails when that worker is gone. Sockets and timers are in `LinkShell`; which browsers may connect is decided by the gate
and the endpoint.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import orjson

from tabrelay.calls.calls import QUICK, QUICK_ROOM, Call, Notice, Pending, Reply
from tabrelay.calls.peer import PeerKind
from tabrelay.errors import BadAnswer, BadRequest, BrowserGone, Busy, RelayError, ResultTooLarge, with_unknown_delivery
from tabrelay.payloads.sliced import Payload, SlicedPayload, memory_of, text_of
from tabrelay.peers.browsers import response_check
from tabrelay.peers.browsers.link_shell import LinkShell
from tabrelay.peers.browsers.measured_calls import MeasuredCalls, report
from tabserver.wire import methods
from tabserver.wire.control_messages import ABOUT, CLOSE_STREAM, OURS, PIN, RELAY, TABS, is_pin
from tabserver.wire.eras import Era
from tabserver.wire.errors import BufferFull, MessageTooLarge
from tabserver.wire.events import (
    ByeReceived,
    ClockRead,
    Closed,
    Event,
    Expired,
    Received,
    Silence,
    Undeliverable,
    Violation,
    Welcomed,
)
from tabserver.wire.frames import CLOSE_PROTOCOL, CLOSE_REPLACED, CLOSE_TOO_BIG, Caller, Kind
from tabserver.wire.jsonrpc import INVALID_REQUEST, error_message, notification
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tabserver.wire.pending_calls import PendingCalls
from tabserver.wire.states import Phase

log = logging.getLogger(__name__)

MAX_LISTENERS: Final = 512
# Characters of a browser's notification or request, which clients and other modules parse again as a whole.
MAX_NOTICE: Final = 4 * 1024 * 1024
MAX_CONTROL: Final = 256 * 1024  # characters of a control message to the relay itself: tabs, a pin
# Calls of one event-loop iteration that are written together. With more, the browser would wait until all are read, and
# then the relay until all are answered: that costs a third of the calls per second and saves no processor time.
CALLS_PER_WRITE: Final = 8
# Needed for each call. Python 3.11 looks up an enum member by a function call, every time.
UP: Final = Phase.UP
MODERN: Final = Era.MODERN
REQ: Final = Kind.REQ


class BrowserPeer(LinkShell):
    """One session with one browser worker. A new session is a new BrowserPeer; a new socket is not."""

    def __init__(
        self,
        server: str,
        *,
        inst: str,
        principal: str,
        origin: str | None,
        link: Link[Any],  # sends text; receives text, or slices of it
        pending_calls: PendingCalls[Pending],
        budget: MemoryBudget,
        in_flight_limit: int,
        max_values: int,
        on_up: Callable[[BrowserPeer], None],
        on_away: Callable[[BrowserPeer], None],
        on_gone: Callable[[BrowserPeer], None],
        on_tabs: Callable[[BrowserPeer, object], None] = lambda peer, message: None,
        browser: str = "",
    ) -> None:
        """`server`: the name that it holds, or its own address where browsers share a name. `browser`: the browser's
        name for display."""
        super().__init__(server, link, pending_calls)
        self.inst = inst
        self.principal = principal
        self.origin = origin
        self.browser = browser
        self._budget = budget
        self._in_flight_limit = in_flight_limit
        self._max_values = max_values
        self._on_up = on_up
        self._on_away = on_away
        self._on_gone = on_gone
        self._on_tabs = on_tabs
        self._sinks: dict[str, Callable[[Notice], None]] = {}
        self._measured = MeasuredCalls(link, self._loop)
        self.is_resumed = False  # did the current socket resume the session?

    # -- interface for the switch -------------------------------------------------------------------------------------

    @property
    def kind(self) -> PeerKind:
        return PeerKind.BROWSER

    @property
    def is_up(self) -> bool:
        return self.link.phase is UP and not self._gone

    @property
    def is_reserved(self) -> bool:
        """L8: is the name kept for its principal? It is while the browser is up or has a client's call, and during the
        grace of a browser that did not leave on purpose."""
        if self._gone or self.is_up or not self._has_left:
            return not self._gone
        # defence: take-over: a name is kept while its browser has a call
        return self.has_client_calls

    @property
    def is_releasable(self) -> bool:
        return not self.has_client_calls

    @property
    def has_client_calls(self) -> bool:
        """Has it a call of a client? A subscription is not one, nor what the relay itself reads."""
        calls = (pending.call for pending in self._pending_calls.values())
        return any(call.method != methods.SUBSCRIPTIONS_LISTEN and call.caller.principal != RELAY for call in calls)

    @property
    def identity(self) -> str:
        """Identity of the worker, from which its parts can't be read. It includes the principal and the origin: another
        page that uses the same instance name is another worker, and gets none of its calls."""
        # defence: another worker's calls
        return hashlib.sha256(f"{self.principal} {self.origin} {self.inst}".encode()).hexdigest()[:32]

    @property
    def in_flight(self) -> int:
        """Number of calls that will end. A subscription stream does not count."""
        return sum(pending.call.method != methods.SUBSCRIPTIONS_LISTEN for pending in self._pending_calls.values())

    def start(self, pending: Pending) -> None:
        call, calls, asked_of = pending.call, self._pending_calls, pending.asked_of
        key = (call.channel, call.id)
        # Counted one by one only when there are many, since listeners are not calls and have a separate bound. A call
        # that this browser already has takes no more room when it is sent again.
        if len(calls) >= self._in_flight_limit and asked_of is None:
            self._check_limit(call)
        if key in calls:
            raise BadRequest(f"Request id {call.id!r} is still in use in this session.", reason="duplicate_id")
        if asked_of is not None and asked_of != self.identity:
            raise BrowserGone(f'Another browser took over "{self.server}" while it had the call.')
        self._send_request(pending, again=asked_of is not None)
        calls[key] = pending
        self._unwritten += 1
        if self._unwritten >= CALLS_PER_WRITE:
            self._write()
        elif not self._will_write:
            self._write_soon()

    def _check_limit(self, call: Call) -> None:
        running = self.in_flight
        most = self._in_flight_limit + (QUICK_ROOM if call.method in QUICK else 0)
        if call.method == methods.SUBSCRIPTIONS_LISTEN and len(self._pending_calls) - running >= MAX_LISTENERS:
            raise Busy(f'{MAX_LISTENERS} callers listen to "{self.server}" already.', retry_after_ms=10_000)
        if call.method != methods.SUBSCRIPTIONS_LISTEN and running >= most:
            raise Busy(
                f'Server "{self.server}" has {running} calls in flight already. Try again in a moment.',
                retry_after_ms=1000,
            )

    def _send_request(self, pending: Pending, *, again: bool = False) -> None:
        call, trace = pending.call, pending.call.trace
        is_measured = trace is not None and self._measured.sending(trace, again=again)
        is_single = call.caller.era is MODERN
        caller = call.caller if is_single else None
        try:
            if not is_single and call.channel not in self._opened:
                self._open(call.channel, call.caller)
            now = self._loop.time()
            # By position: Python 3.11 does not specialize calls with keywords.
            self.link.send(call.channel, REQ, call.payload, now, call.id, None, caller, again, is_measured)
        except BufferFull:
            raise Busy(
                f'Server "{self.server}" is not keeping up. Try again in a moment.', retry_after_ms=1000
            ) from None
        except MessageTooLarge as error:
            text = f"The request is too large for a browser: {error}."
            raise BadRequest(text, status=413, reason="too_large") from None

    def cancel(self, pending: Pending, why: str) -> None:
        call = pending.call
        if self._pending_calls.pop((call.channel, call.id), None) is None or self._gone:
            return
        if call.caller.era is MODERN:
            self._send_best_effort(lambda now: self.link.close(call.channel, why, now))
        else:
            note = notification(methods.CANCELLED, {"requestId": call.id, "reason": why})
            self.notify(call.channel, call.caller, orjson.dumps(note).decode())

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        def send(now: float) -> None:
            self._open(channel, caller)
            # A response may contain a key "method" at any depth, so the text has to be parsed.
            is_note = '"method"' in payload and "method" in orjson.loads(payload)
            kind = Kind.NOTE if is_note else Kind.RES
            self.link.send(channel, kind, payload, now)

        self._send_best_effort(send)

    def end(self, channel: str, why: str) -> None:
        self._sinks.pop(channel, None)
        if self._opened.pop(channel, None) is not None:
            self._send_best_effort(lambda now: self.link.close(channel, why, now))

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self._sinks[channel] = sink
        self._send_best_effort(lambda _now: self._open(channel, caller))

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        """L8: the newest browser gets the name. This one gets a close code that stops it from reconnecting."""
        late = self.unconfirmed() if successor == self.identity else []
        self.retire(CLOSE_REPLACED, "another browser now offers this server", is_displaced=True)
        return late

    def unconfirmed(self) -> list[tuple[str, Caller, str]]:
        """Messages of client sessions that the browser has not acknowledged: it may have left before they arrived."""
        sent = [(channel, self._opened.get(channel), text) for channel, _, text in self.link.unacknowledged_messages()]
        return [(channel, one, text) for channel, one, text in sent if one is not None and one.principal != RELAY]

    # -- events of the link -------------------------------------------------------------------------------------------

    def retire(self, code: int, reason: str, retry_ms: int | None = None, *, is_displaced: bool = False) -> None:
        """End the session now: the relay stops, or another session took over the name and its calls."""
        if self._gone:
            return
        if self._socket is not None:
            self.link.bye(code, reason, self._loop.time(), retry_ms)
            self._write()
            self._socket.close(code, reason)
            self._socket = None
        self._end()
        if not is_displaced:
            self._fail_calls(self._pending_calls.abandon(), reason)

    def _handle(self, event: Event) -> None:
        match event:
            case Received():
                self._received(event)
            case Welcomed():
                self._welcomed(event)
            case ClockRead(stamp, theirs):
                self._measured.clock_read(stamp, theirs)
            case Closed(channel, why):
                self._channel_closed(channel, why)
            case Violation(reason, too_much=True):
                log.warning("%s: the browser sent too much: %s", self.server, reason)
                self.retire(CLOSE_TOO_BIG, reason)
            case Violation(reason):
                log.warning("%s: the browser broke the link's protocol: %s", self.server, reason)
                self._drop(CLOSE_PROTOCOL, reason)
            case Undeliverable():
                self._undeliverable(event)
            case Silence(waited_for):
                self._drop(CLOSE_PROTOCOL, f"waited too long for {waited_for}")
            case Expired():
                self._end()
                self._fail_calls(self._pending_calls.abandon(), "it did not reconnect in time")
            case ByeReceived(code, reason):
                # defence: take-over: a goodbye frees a name
                self._has_left = True
                log.debug("%s: the browser sent bye: %s %s", self.server, code, reason)
            case _:
                log.debug("%s: ignored %r", self.server, event)

    def _undeliverable(self, event: Undeliverable) -> None:
        log.warning("%s: the browser closed the connection because of a frame, which is not sent again", self.server)
        if event.kind is None:
            self._opened.pop(event.channel, None)
        pending = self._pending_calls.pop((event.channel, event.id), None) if event.id is not None else None
        if pending is not None:
            text = f'The browser that offers "{self.server}" closed its connection when it got the call.'
            pending.end(BrowserGone(text))

    def _welcomed(self, event: Welcomed) -> None:
        self.is_resumed = event.resumed
        report(self._pending_calls.values(), "resumed", "The browser is connected again.")
        if not event.resumed:
            # L6: calls are sent again to the same worker only.
            again, lost = self._pending_calls.claim(self.identity)
            for pending in again:
                try:
                    self._send_request(pending, again=True)
                except RelayError as error:
                    self._pending_calls.pop((pending.call.channel, pending.call.id), None)
                    # defence: calls that find no room in a new session of their worker
                    pending.end(with_unknown_delivery(error))
            self._fail_calls(lost, "another worker of the browser took its place")
        self._on_up(self)

    def _received(self, event: Received[Any]) -> None:
        if event.kind is Kind.RES and event.id is not None:
            pending = self._pending_calls.pop((event.channel, event.id), None)
            if pending is not None and pending.call.trace is not None:
                self._measured.answered(pending.call.trace, event.reported)
            if pending is not None and isinstance(event.payload, SlicedPayload):
                # In another event-loop iteration: this one has checked the last slices.
                self._loop.call_soon(self._resolve, pending, event.payload)
            elif pending is not None:
                self._resolve(pending, event.payload)
        elif event.kind is not Kind.RES:
            self._received_message(event, event.payload)

    def _received_message(self, event: Received[Any], content: Payload) -> None:
        """Pass a notification or request on to the call it belongs to, or to the session's stream."""
        message = response_check.read_skeleton(content, self._max_values) if len(content) <= MAX_NOTICE else None
        # Only a session accepts requests. A message that contradicts its header is refused.
        is_question = event.kind is Kind.REQ
        if is_question and event.channel not in self._opened:
            return
        if message is None or ("id" in message) is not is_question:
            self._refuse(event)
            return
        payload = text_of(content)
        if isinstance(content, SlicedPayload) and message.get("method") in (TABS, PIN):
            # Read it again with its long strings. It is parsed twice, so a longer one is dropped.
            # defence: length of a note about tabs
            message = (response_check.read(payload, self._max_values) if len(content) <= MAX_CONTROL else None) or {}
        method, params = message.get("method"), message.get("params", {})
        # defence: the shape of a browser's note
        if not isinstance(method, str) or not isinstance(params, dict):
            return  # JSON-RPC allows an array of params, MCP does not
        related = self._pending_calls.get((event.channel, event.related)) if event.related is not None else None
        if method == CLOSE_STREAM:
            if related is not None and related.call.caller.era is Era.LEGACY:
                related.notify(Notice(payload, ends_stream=True))
        elif method == TABS:
            self._on_tabs(self, params)
        elif method == ABOUT:
            caller = self._opened.get(event.channel)
            # Of this relay, or of another one on its bus: each reads it for itself.
            if caller is not None and caller.principal == RELAY and event.channel in self._sinks:
                self._sinks[event.channel](Notice(payload))
        elif method == PIN:
            tab = params.get("tab")
            # defence: the length of a pinned tab's id
            if related is not None and is_pin(tab):
                related.pin(tab)
        elif method.startswith(OURS):
            log.debug("%s: ignored the control message %.80s", self.server, method)
        elif related is not None:
            related.notify(Notice(payload))
        elif event.channel in self._sinks:
            self._sinks[event.channel](Notice(payload))

    def _refuse(self, event: Received[Any]) -> None:
        """Drop a notification or request of the browser. A request gets an error, since the browser waits for it."""
        log.debug("%s: dropped a %s of the browser: not JSON-RPC, or too large", self.server, event.kind.value)
        if event.kind is Kind.REQ and event.id is not None:
            text = f"Not one JSON-RPC request of at most {MAX_NOTICE:,} characters and {self._max_values:,} values."
            payload = orjson.dumps(error_message(event.id, INVALID_REQUEST, text)).decode()
            self._send_best_effort(lambda now: self.link.send(event.channel, Kind.RES, payload, now))

    def _resolve(self, pending: Pending, payload: Payload) -> None:
        """Finish the call with the browser's response, or fail it if that is not a valid response."""
        try:
            code, is_plain = response_check.classify(payload, pending.call.id, self._max_values)
        except (BadAnswer, ResultTooLarge) as error:
            pending.end(error)
            return
        # Until the caller has it, the answer counts towards the memory budget of the links.
        budget, cost = self._budget, memory_of(payload)
        budget.add(cost)
        pending.end(Reply(payload, code, is_plain, budget, cost))

    def _channel_closed(self, channel: str, why: str) -> None:
        self._opened.pop(channel, None)
        for pending in self._pending_calls.take_channel(channel):
            pending.end(BrowserGone(f'Server "{self.server}" ended the call: {why}.'))

    def _socket_closed(self) -> None:
        report(self._pending_calls.values(), "cut", "The connection to the browser was lost.")
        self._on_away(self)

    def _end(self) -> None:
        self._end_link()
        self._on_gone(self)

    def _fail_calls(self, lost: list[Pending], why: str) -> None:
        for pending in lost:
            pending.end(BrowserGone(f'The browser that offers "{self.server}" left while it had the call: {why}.'))
