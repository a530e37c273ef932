"""Peer for plain pages: MCP over a WebSocket without a link, in the handshake era.

For pages that use an MCP SDK directly (subprotocol `mcp`) or that offer no subprotocol. A page may open several
sockets: the newest one that answered `initialize` is used, the others stay open and idle, and none is closed by the
relay. All callers share the page's one session; modern callers go through `ModernToLegacy`. Request ids differ on all
sockets, so an answer counts on whichever socket of the same principal it arrives. A plain page can't resume: when its
socket closes, its calls are lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any, Final

import orjson

from tabrelay.calls.calls import QUICK, QUICK_ROOM, Call, Notice, Pending, Reply
from tabrelay.calls.peer import PeerKind
from tabrelay.errors import BadRequest, BrowserGone, Busy, ServerOffline
from tabrelay.peers.browsers.plain_session import PlainSession, PlainSocket
from tabrelay.routing.question_limits import QuestionLimits
from tabrelay.translation import messages
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls
from tabrelay.translation.shared_session import SharedSession
from tabrelay.translation.to_legacy import ModernToLegacy
from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

log = logging.getLogger(__name__)

# Idle sockets cost memory. A page that opens more than this without closing any is broken.
MAX_SOCKETS: Final = 32


class PlainPeer:
    """All plain pages of one server. It outlives them, so that callers that listen receive from the next one."""

    kind: Final = PeerKind.PLAIN
    identity: Final = None
    browser: Final = ""

    def __init__(
        self,
        server: str,
        *,
        parked_calls: ParkedCalls[LegacyCall],
        in_flight_limit: int,
        repeat_s: float,
        limits: QuestionLimits,
        max_values: int,
        on_up: Callable[[PlainPeer], None],
        on_away: Callable[[PlainPeer], None],
    ) -> None:
        self._server = server
        self._in_flight_limit = in_flight_limit
        self._repeat_s = repeat_s
        self._limits = limits
        self._max_values = max_values
        self._on_up = on_up
        self._on_away = on_away
        self._translator = ModernToLegacy(self, parked_calls)
        self._ids = itertools.count(1)
        self._sockets: set[PlainSession] = set()
        self._initialized: list[PlainSession] = []  # the newest is last, and is the one in use
        self._shared = SharedSession(lambda: self.about, self._call_page, self._send_own_request)
        self._subscribers = self._shared.subscribers

    # -- sockets ------------------------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return self._server

    @property
    def principal(self) -> str | None:
        """Principal of the page in use."""
        return self._initialized[-1].principal if self._initialized else None

    @property
    def origin(self) -> str | None:
        return None

    @property
    def is_releasable(self) -> bool:
        return False

    @property
    def is_reserved(self) -> bool:
        """A plain page can't resume, so it has no grace."""
        return self.is_up

    @property
    def has_room(self) -> bool:
        return len(self._sockets) < MAX_SOCKETS

    def attach(self, socket: PlainSocket, principal: str) -> PlainSession:
        session = PlainSession(
            self._server,
            principal,
            socket,
            self,
            ids=self._ids,
            repeat_s=self._repeat_s,
            limits=self._limits,
            max_values=self._max_values,
        )
        self._sockets.add(session)
        session.send_initialize()
        return session

    def detach(self, session: PlainSession) -> None:
        """The socket closed. Only its calls are lost; an older socket that is still open is used again."""
        self._sockets.discard(session)
        was_used = self.is_up and session is self._initialized[-1]
        if session in self._initialized:
            self._initialized.remove(session)
        if was_used:
            self._activate()
        session.end(f'The page that offers "{self._server}" left while it had the call. It can\'t be resumed.')

    def sender_of(self, session: PlainSession, id: object) -> PlainSession | None:
        # defence: plain pages: a page of another principal answers nothing
        others = (other for other in self._sockets if other.principal == session.principal)
        return next((other for other in others if other.has_sent(id)), None)

    def initialized(self, session: PlainSession) -> None:
        if session not in self._sockets:
            return
        if self.is_up and self.principal != session.principal:
            # A page of another principal has the name: this one stays idle until that one is gone.
            self._initialized.insert(0, session)
            return
        self._initialized.append(session)
        self._activate()

    def _activate(self) -> None:
        """Start to use the newest page. It gets the log level and the subscriptions that callers asked for."""
        if not self._initialized:
            self._on_away(self)
            return
        self._shared.resume()
        self._on_up(self)

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        self.suspend()
        return []

    def suspend(self) -> None:
        """Another peer took the name. The pages stay connected and idle: closed, they would only dial again."""
        for page in self._sockets:
            page.drop_calls(f'Another browser took over "{self._server}" while it had the call.')
        self._translator.retire()
        self._subscribers.clear_listeners()

    def retire(self, code: int, reason: str, retry_ms: int | None = None) -> None:
        """The relay stops. Without a link there is no way to give the page a retry time."""
        self.suspend()
        for page in self._sockets:
            page.close(code, reason)

    # -- interface for the switch -------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return bool(self._initialized)

    @property
    def in_flight(self) -> int:
        return sum(conversation.in_flight for conversation in self._sockets)

    @property
    def about(self) -> dict[str, Any]:
        """The page's `initialize` result. Tasks are left out: a page would show one caller's tasks to all others."""
        about = (self._initialized[-1].about if self._initialized else None) or {}
        return {**about, "capabilities": messages.visible_capabilities(about)}

    def start(self, pending: Pending) -> None:
        call = pending.call
        if not self._initialized:
            raise ServerOffline(f'Server "{self._server}" is not connected. Open its page.', retry_after_ms=3000)
        if call.caller.era is Era.MODERN:
            self._translator.start(pending)
        else:
            self._shared.start(pending)

    def _call_page(self, pending: Pending, params: dict[str, Any] | None) -> None:
        self._check_limit(pending.call)
        self._initialized[-1].call(pending, params)

    def _send_own_request(self, method: str, params: dict[str, Any]) -> None:
        self._initialized[-1].send_request(method, params)

    def _check_limit(self, call: Call) -> None:
        if self.in_flight >= self._in_flight_limit + (QUICK_ROOM if call.method in QUICK else 0):
            raise Busy(
                f'Server "{self._server}" has {self.in_flight} calls in flight already. Try again in a moment.',
                retry_after_ms=1000,
            )
        if any(page.find(call.channel, call.id) is not None for page in self._sockets):
            raise BadRequest(f"Request id {call.id!r} is still in use in this session.", reason="duplicate_id")

    def cancel(self, pending: Pending, why: str) -> None:
        if pending.call.caller.era is Era.MODERN:
            self._translator.cancel(pending, why)
        else:
            any(page.cancel(pending, why) for page in self._sockets)

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        message = orjson.loads(payload)
        method, params = message.get("method"), message.get("params")
        if method is None and jsonrpc.is_request_id(message.get("id")):
            any(page.answer(channel, message) for page in self._sockets)
        elif method == methods.CANCELLED and isinstance(params, dict):
            reason = params.get("reason")
            self._cancel_by_id(channel, params.get("requestId"), reason if isinstance(reason, str) else "cancelled")
        # Any other notification would speak for all callers: the relay sent `initialized`, and roots are asked anew.

    def _cancel_by_id(self, channel: str, id: object, why: str) -> None:
        """Cancel a call by its id. Pages do not answer a cancelled request, but the caller's stream must end."""
        for page in self._sockets:
            pending = page.find(channel, id)
            if pending is not None:
                page.cancel(pending, why)
                pending.end(Reply.with_error(pending.call.id, jsonrpc.REQUEST_CANCELLED, "The request was cancelled."))

    def end(self, channel: str, why: str) -> None:
        for page in self._sockets:
            for pending in page.calls_of(channel):
                page.cancel(pending, why)
                pending.end(BrowserGone(f"The session has ended: {why}."))
        self._shared.leave(channel, is_connected=self.is_up)

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self._subscribers.listen(channel, sink)

    # -- state that all callers share ---------------------------------------------------------------------------------

    def announced(self, session: PlainSession, message: dict[str, Any]) -> None:
        if self._initialized and session is self._initialized[-1]:
            self._subscribers.announce(message)

    def logged(self, session: PlainSession, params: dict[str, Any]) -> None:
        # Calls may run on another socket of the page.
        if self._initialized and session is self._initialized[-1] and not self.in_flight:
            self._shared.background_logs.announce(params, asyncio.get_running_loop().time())

    def wants_log(self, channel: str, params: object) -> bool:
        return self._subscribers.wants_level(channel, params)
