"""A server that lives in a plain page: MCP over a WebSocket, without a link, in the handshake era.

For pages that run an SDK of their own (subprotocol `mcp`) or none that the relay knows (no subprotocol at all). Such a
page can't resume: when its socket goes, its calls are lost. It may dial several times, and must never be thrown out
once it was let in; the newest socket that answers is used, the others stay open and idle. All callers share the one
session that a page has; modern ones come through a Translator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import orjson

from tabrelay.calls.calls import QUICK, QUICK_ROOM, Call, Notice, PeerKind, Pending
from tabrelay.errors import BadRequest, BrowserGone, Busy, ServerOffline
from tabrelay.peers.browsers.plain_session import PlainSession, PlainSocket
from tabrelay.routing.question_limits import QuestionLimits
from tabrelay.translation import messages
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls
from tabrelay.translation.subscribers import Subscribers
from tabrelay.translation.to_legacy import ModernToLegacy
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

log = logging.getLogger(__name__)

# Surplus sockets cost memory; a page that dials more often than this without hanging up is broken.
MAX_SOCKETS: Final = 32


class PlainPeer:
    """All plain pages of one server. Stays when they go, so that callers that listen hear the next one."""

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
        self._sockets: set[PlainSession] = set()
        self._initialized: list[PlainSession] = []  # the newest that answered is last, and the one that is used
        self._subscribers = Subscribers()

    # -- sockets ------------------------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return self._server

    @property
    def kind(self) -> PeerKind:
        return PeerKind.PLAIN

    @property
    def identity(self) -> str | None:
        return None

    @property
    def browser(self) -> str:
        return ""

    @property
    def principal(self) -> str | None:
        """Whose page is used now."""
        return self._initialized[-1].principal if self._initialized else None

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
            repeat_s=self._repeat_s,
            limits=self._limits,
            max_values=self._max_values,
        )
        self._sockets.add(session)
        session.send_initialize()
        return session

    def detach(self, session: PlainSession) -> None:
        """The socket closed. Only its own calls are lost; an older socket that still answers is used again."""
        self._sockets.discard(session)
        was_used = self.is_up and session is self._initialized[-1]
        if session in self._initialized:
            self._initialized.remove(session)
        if was_used:
            self._activate()
        session.end(f'The page that offers "{self._server}" left while it had the call. It can\'t be resumed.')

    def initialized(self, session: PlainSession) -> None:
        if session not in self._sockets:
            return
        if self.is_up and self.principal != session.principal:
            # Somebody else's page has the name: this one is surplus until that one goes.
            self._initialized.insert(0, session)
            return
        self._initialized.append(session)
        self._activate()

    def _activate(self) -> None:
        """Begin with the page that is the right one now: it must know what our callers asked of the one before."""
        if not self._initialized:
            self._on_away(self)
            return
        page = self._initialized[-1]
        level = self._subscribers.level
        if level is not None:
            page.send_request(methods.LOGGING_SET_LEVEL, {"level": level})
        for uri in self._subscribers.uris:
            page.send_request(methods.RESOURCES_SUBSCRIBE, {"uri": uri})
        self._on_up(self)

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        self.suspend()
        return []

    def suspend(self) -> None:
        """Another peer took the name. The pages stay, idle: thrown out, they would only come back."""
        for page in self._sockets:
            page.drop_calls(f'Another browser took over "{self._server}" while it had the call.')
        self._translator.retire()
        self._subscribers.clear_listeners()

    def retire(self, code: int, reason: str, retry_ms: int | None = None) -> None:
        """The relay stops. A page without a link can't be told when to come back."""
        self.suspend()
        for page in self._sockets:
            page.close(code, reason)

    # -- the seam that the switch sees --------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return bool(self._initialized)

    @property
    def in_flight(self) -> int:
        return sum(conversation.in_flight for conversation in self._sockets)

    @property
    def about(self) -> dict[str, Any]:
        """What the page said of itself. Tasks are left out: a page would show one caller's to every other."""
        about = (self._initialized[-1].about if self._initialized else None) or {}
        return {**about, "capabilities": messages.visible_capabilities(about)}

    def start(self, pending: Pending) -> None:
        call = pending.call
        if not self._initialized:
            raise ServerOffline(f'Server "{self._server}" is not connected. Open its page.', retry_after_ms=3000)
        if call.caller.era is Era.MODERN:
            self._translator.start(pending)
            return
        page = self._initialized[-1]
        params = call.message().get("params")
        params = params if isinstance(params, dict) else None
        if call.method == methods.INITIALIZE:
            pending.answer({**self.about, "protocolVersion": self._version(call.caller)})
        elif call.method.startswith("tasks/"):
            pending.refuse(jsonrpc.METHOD_NOT_FOUND, "Tasks are not available here.")
        elif call.method == methods.LOGGING_SET_LEVEL:
            self._set_level(page, pending, params or {})
        elif call.method in (methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE):
            self._subscribe(page, pending, params or {})
        else:
            self._check_limit(call)
            page.call(pending, params)

    def _check_limit(self, call: Call) -> None:
        if self.in_flight >= self._in_flight_limit + (QUICK_ROOM if call.method in QUICK else 0):
            raise Busy(
                f'Server "{self._server}" has {self.in_flight} calls in flight already. Try again in a moment.',
                retry_after_ms=1000,
            )
        if any(page.find(call.channel, call.id) is not None for page in self._sockets):
            raise BadRequest(f"Request id {call.id!r} is still in use in this session.", reason="duplicate_id")

    def _version(self, caller: Caller) -> str:
        """The older of what the client speaks and what the page speaks."""
        page = self.about.get("protocolVersion")
        return max(
            (version for version in (caller.version, page) if version in eras.LEGACY_VERSIONS),
            key=eras.LEGACY_VERSIONS.index,
        )

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
        # Anything else would speak for every caller at once: the page has its own handshake, and asks for roots anew.

    def _cancel_by_id(self, channel: str, id: object, why: str) -> None:
        """Pages do not answer what was cancelled, and the caller's stream must end."""
        for page in self._sockets:
            pending = page.find(channel, id)
            if pending is not None:
                page.cancel(pending, why)
                pending.refuse(jsonrpc.REQUEST_CANCELLED, "The request was cancelled.")

    def end(self, channel: str, why: str) -> None:
        for page in self._sockets:
            for pending in page.calls_of(channel):
                page.cancel(pending, why)
                pending.fail(BrowserGone(f"The session has ended: {why}."))
        before = self._subscribers.level
        unwanted = self._subscribers.leave(channel)
        if not self._initialized:
            return
        if self._subscribers.level not in (None, before):
            self._initialized[-1].send_request(methods.LOGGING_SET_LEVEL, {"level": self._subscribers.level})
        for uri in unwanted:
            self._initialized[-1].send_request(methods.RESOURCES_UNSUBSCRIBE, {"uri": uri})

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self._subscribers.listen(channel, sink)

    # -- what all callers share ---------------------------------------------------------------------------------------

    def announced(self, session: PlainSession, message: dict[str, Any]) -> None:
        if self._initialized and session is self._initialized[-1]:
            self._subscribers.announce(message)

    def wants_log(self, channel: str, params: object) -> bool:
        return self._subscribers.wants_level(channel, params)

    def _set_level(self, page: PlainSession, pending: Pending, params: dict[str, Any]) -> None:
        """The page has one level for all: the most talkative that a caller asked for. Each then hears its own."""
        level, before = params.get("level"), self._subscribers.level
        if level in methods.LOG_LEVELS:
            self._subscribers.set_level(pending.call.channel, level)
            if self._subscribers.level == before:
                pending.answer({})
                return
            params = {**params, "level": self._subscribers.level}
        page.call(pending, params)

    def _subscribe(self, page: PlainSession, pending: Pending, params: dict[str, Any]) -> None:
        uri, channel = params.get("uri"), pending.call.channel
        if isinstance(uri, str):
            if pending.call.method == methods.RESOURCES_SUBSCRIBE:
                # defence: bounds: subscriptions of a plain page's callers
                if (refusal := self._subscribers.refusal(channel, uri)) is not None:
                    pending.refuse(jsonrpc.INVALID_PARAMS, refusal)
                    return
                self._subscribers.subscribe(channel, uri)
            elif not self._subscribers.unsubscribe(channel, uri):
                pending.answer({})  # another caller still wants to hear of it
                return
        page.call(pending, params)
