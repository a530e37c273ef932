"""Translator from calls of the handshake era to a modern server.

Each legacy call becomes one modern request with the client description from `initialize`. When the server answers with
questions, they are sent on the caller's stream as legacy requests, and the modern request is repeated with the answers.
Log levels and subscriptions of sessions are kept here; one listen stream of the relay serves all of them. Knows no
transport: the peer that owns a translator passes legacy calls in and receives modern ones through `ModernPeer`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import Any, Final, Protocol

import orjson

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import RelayError
from tabrelay.translation import messages
from tabrelay.translation.subscribers import Subscribers, read_notification
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

MAX_ROUNDS: Final = 10
MAX_QUESTIONS: Final = 64  # in one round
RELISTEN_S: Final = 1.0
DEFAULT_LEVEL: Final = "info"  # of a session that set none: the server would choose then, and most choose this
NOT_OFFERED: Final = frozenset({methods.SERVER_DISCOVER, methods.SUBSCRIPTIONS_LISTEN})


class ModernPeer(Protocol):
    """A peer whose server supports 2026-07-28, as the translator uses it: with modern callers only."""

    @property
    def discovered(self) -> dict[str, Any]:
        """The server's DiscoverResult."""

    @property
    def is_modern(self) -> bool:
        """Is a modern server connected?"""

    def start(self, pending: Pending) -> None: ...

    def cancel(self, pending: Pending, why: str) -> None: ...


class MultiRoundCall:
    """A legacy call with all its rounds: one modern request for each."""

    def __init__(self, outer: Pending, params: messages.Params) -> None:
        self.outer = outer
        self.params = params
        self.round: Round | None = None
        self.rounds = 0
        self.state: object = None
        self.asks: dict[str, str] = {}  # our id -> the server's key
        self.answers: dict[str, Any] = {}


class Round(Pending):
    """One modern request of a legacy call."""

    __slots__ = ("translator", "whole_call")

    def __init__(self, call: Call, whole_call: MultiRoundCall, translator: LegacyToModern) -> None:
        super().__init__(call)
        self.whole_call = whole_call
        self.translator = translator

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            self.whole_call.outer.notify(notice)

    def end(self, outcome: Reply | RelayError) -> None:
        """Raises ValueError if the reply can't be parsed; the round is then not finished."""
        if isinstance(outcome, Reply):
            outcome.release()
        if self.is_done:
            return
        message = outcome.message() if isinstance(outcome, Reply) else None
        self.is_done = True
        if isinstance(outcome, RelayError):
            self.translator.ended(self.whole_call)
            self.whole_call.outer.end(outcome)
        elif message is not None:
            self.translator.answered(self.whole_call, message)


class NotificationSink(Pending):
    """The listen stream that serves all sessions."""

    __slots__ = ("translator",)

    def __init__(self, call: Call, translator: LegacyToModern) -> None:
        super().__init__(call)
        self.translator = translator

    def notify(self, notice: Notice) -> None:
        message = read_notification(notice.payload)
        if message is not None:
            self.translator.receive(self, message)

    def end(self, outcome: Reply | RelayError) -> None:
        if isinstance(outcome, Reply):
            outcome.release()
        if not self.is_done:
            self.is_done = True
            self.translator.sink_closed(self)


class LegacyToModern:
    """One per upstream; used while its server is modern."""

    def __init__(self, peer: ModernPeer, client: dict[str, Any]) -> None:
        """`client`: the relay's client info, for its own listen stream."""
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._subscribers = Subscribers()
        self._calls: dict[Pending, MultiRoundCall] = {}
        self._asked: dict[str, MultiRoundCall] = {}
        self._ids = itertools.count(1)
        # Prefix of the relay's own channels, distinct from those of callers and other upstreams.
        self._prefix = f"own-{secrets.token_hex(3)}"
        self._relay = Caller(Era.MODERN, eras.MODERN_VERSIONS[0], "relay", client, {})
        self._sink: NotificationSink | None = None
        self._filter_key: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    # -- called by the peer --------------------------------------------------------------------------------------------

    def start(self, outer: Pending) -> None:
        """Start a legacy call. Raises a RelayError if nothing was sent."""
        method, params = outer.call.method, outer.call.message().get("params")
        params = params if isinstance(params, dict) else {}
        if method == methods.INITIALIZE:
            outer.end(
                Reply.with_result(outer.call.id, messages.initialized(self._peer.discovered, outer.call.caller.version))
            )
        elif method == methods.PING:
            outer.end(Reply.with_result(outer.call.id, {}))
        elif method == methods.LOGGING_SET_LEVEL:
            self._set_level(outer, params.get("level"))
        elif method in (methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE):
            self._subscribe(outer, params.get("uri"))
        elif method in NOT_OFFERED or method.startswith("tasks/"):
            outer.end(Reply.with_error(outer.call.id, jsonrpc.METHOD_NOT_FOUND, f'"{method}" is not available here.'))
        else:
            whole_call = self._calls[outer] = MultiRoundCall(outer, params)
            try:
                self._ask_server(whole_call)
            except RelayError:
                self.ended(whole_call)
                raise

    def cancel(self, outer: Pending, why: str) -> bool:
        """The caller has gone or waited too long. False if the call is not here."""
        whole_call = self._calls.get(outer)
        if whole_call is None:
            return False
        self.ended(whole_call)
        if whole_call.round is not None and not whole_call.round.is_done:
            whole_call.round.is_done = True
            self._peer.cancel(whole_call.round, why)
        return True

    def notify(self, channel: str, message: dict[str, Any]) -> None:
        """Handle a caller's notification, or its response to a question."""
        method, params = message.get("method"), message.get("params")
        if method is None and jsonrpc.is_request_id(message.get("id")):
            self._receive_answer(channel, message)
        elif method == methods.CANCELLED and isinstance(params, dict):
            for outer in self.of(channel):
                if outer.call.id == params.get("requestId"):
                    self.cancel(outer, "the client cancelled it")
                    outer.end(Reply.with_error(outer.call.id, jsonrpc.REQUEST_CANCELLED, "The request was cancelled."))

    def find(self, channel: str, id: jsonrpc.RequestId) -> Pending | None:
        return next((outer for outer in self.of(channel) if outer.call.id == id), None)

    def of(self, channel: str) -> list[Pending]:
        return [outer for outer in self._calls if outer.call.channel == channel]

    def end(self, channel: str) -> None:
        """A session ended; its calls were cancelled."""
        self._subscribers.leave(channel)
        self._relisten()

    def listen(self, channel: str, sink: Callable[[Notice], None]) -> None:
        self._subscribers.listen(channel, sink)
        self._relisten()

    # -- a call --------------------------------------------------------------------------------------------------------

    def _ask_server(self, whole_call: MultiRoundCall) -> None:
        call, whole_call.rounds = whole_call.outer.call, whole_call.rounds + 1
        caller = Caller(
            Era.MODERN, eras.MODERN_VERSIONS[0], call.caller.principal, call.caller.client, call.caller.capabilities
        )
        level = self._subscribers.level_of(call.channel) or DEFAULT_LEVEL
        params = messages.modern_params(whole_call.params, caller, level if self._can("logging") else None)
        if whole_call.rounds > 1:
            params["inputResponses"] = whole_call.answers
            if whole_call.state is not None:
                params["requestState"] = whole_call.state
        whole_call.answers = {}
        request = jsonrpc.request(call.id, call.method, params)
        inner = Call(self._channel(), call.id, call.method, orjson.dumps(request).decode(), caller)
        inner.values = request
        whole_call.round = Round(inner, whole_call, self)
        try:
            self._peer.start(whole_call.round)
        finally:
            inner.values = None

    def answered(self, whole_call: MultiRoundCall, message: dict[str, Any]) -> None:
        """Handle the server's answer, which may consist of questions."""
        result = message.get("result")
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            self._send_questions(whole_call, result)
            return
        self.ended(whole_call)
        error = message.get("error")
        if isinstance(error, dict):
            error = messages.legacy_error(whole_call.outer.call.method, error)
            whole_call.outer.end(Reply.with_server_error(whole_call.outer.call.id, error))
        else:
            whole_call.outer.end(
                Reply.with_result(
                    whole_call.outer.call.id, messages.legacy_result(whole_call.outer.call.method, result)
                )
            )

    def ended(self, whole_call: MultiRoundCall) -> None:
        self._calls.pop(whole_call.outer, None)
        for id in whole_call.asks:
            self._asked.pop(id, None)

    # -- asking the client ---------------------------------------------------------------------------------------------

    def _send_questions(self, whole_call: MultiRoundCall, result: dict[str, Any]) -> None:
        asked = result.get("inputRequests")
        asked = asked if isinstance(asked, dict) else {}
        whole_call.state = result.get("requestState")
        problem = self._problem(whole_call, asked)
        if problem is not None:
            self.ended(whole_call)
            whole_call.outer.end(Reply.with_error(whole_call.outer.call.id, jsonrpc.INVALID_REQUEST, problem))
            return
        for key, request in asked.items():
            id = f"ask-{next(self._ids)}"
            whole_call.asks[id] = key
            self._asked[id] = whole_call
            ask = messages.legacy_ask(request["method"], request.get("params"))
            whole_call.outer.notify(Notice(orjson.dumps(jsonrpc.request(id, request["method"], ask)).decode()))
        if not asked:
            self._next_round(whole_call)

    def _problem(self, whole_call: MultiRoundCall, asked: dict[str, Any]) -> str | None:
        """Why these questions can't be asked; None if they can."""
        if whole_call.rounds >= MAX_ROUNDS:
            return f"The server asked more than {MAX_ROUNDS - 1} times during one call."
        if len(asked) > MAX_QUESTIONS:
            return f"The server asks {len(asked):,} questions at once, and at most {MAX_QUESTIONS} are passed on."
        if not asked and whole_call.state is None:
            return "The server requires input, but asks no question."
        for request in asked.values():
            method = request.get("method") if isinstance(request, dict) else None
            if method not in messages.MAY_BE_ASKED:
                return "The server asks something that clients do not support."
            if (
                messages.missing_capability(whole_call.outer.call.caller.capabilities, method, request.get("params"))
                is not None
            ):
                return f"The server asks for {method}, and this client can't do that."
        return None

    def _receive_answer(self, channel: str, message: dict[str, Any]) -> None:
        whole_call = self._asked.get(message["id"])
        if whole_call is None or whole_call.outer.call.channel != channel:
            return
        del self._asked[message["id"]]
        key, error = whole_call.asks.pop(message["id"]), message.get("error")
        if isinstance(error, dict):
            self.ended(whole_call)
            text = str(error.get("message", "the client could not answer"))
            whole_call.outer.end(
                Reply.with_error(
                    whole_call.outer.call.id, jsonrpc.INVALID_REQUEST, f"The server's question was not answered: {text}"
                )
            )
            return
        whole_call.answers[key] = message.get("result", {})
        if not whole_call.asks:
            self._next_round(whole_call)

    def _next_round(self, whole_call: MultiRoundCall) -> None:
        try:
            self._ask_server(whole_call)
        except RelayError as error:
            self.ended(whole_call)
            whole_call.outer.end(error)

    # -- settings of sessions, and listening ---------------------------------------------------------------------------

    def _set_level(self, outer: Pending, level: object) -> None:
        if level not in methods.LOG_LEVELS:
            outer.end(
                Reply.with_error(
                    outer.call.id, jsonrpc.INVALID_PARAMS, f"level must be one of {', '.join(methods.LOG_LEVELS)}."
                )
            )
        elif not self._can("logging"):
            outer.end(Reply.with_error(outer.call.id, jsonrpc.METHOD_NOT_FOUND, "The server has no logging."))
        else:
            self._subscribers.set_level(outer.call.channel, str(level))
            outer.end(Reply.with_result(outer.call.id, {}))

    def _subscribe(self, outer: Pending, uri: object) -> None:
        if not isinstance(uri, str):
            outer.end(Reply.with_error(outer.call.id, jsonrpc.INVALID_PARAMS, "params.uri is missing."))
            return
        if outer.call.method == methods.RESOURCES_SUBSCRIBE:
            if (refusal := self._subscribers.refusal(outer.call.channel, uri)) is not None:
                outer.end(Reply.with_error(outer.call.id, jsonrpc.INVALID_PARAMS, refusal))
                return
            self._subscribers.subscribe(outer.call.channel, uri)
        else:
            self._subscribers.unsubscribe(outer.call.channel, uri)
        outer.end(Reply.with_result(outer.call.id, {}))
        self._relisten()

    def _can(self, capability: str) -> bool:
        return capability in messages.visible_capabilities(self._peer.discovered)

    def came_up(self) -> None:
        """The server is connected (again) and has no listen stream yet."""
        self._sink = None
        self._filter_key = set()
        self._relisten()

    def _relisten(self, delay_s: float = 0.0) -> None:
        """Update the listen stream soon, once for many changes that come together."""
        if self._timer is None and self._peer.is_modern:
            self._timer = self._loop.call_later(delay_s, self._listen)

    def _listen(self) -> None:
        self._timer = None
        wanted = {key: True for key, _capability, _method in messages.LIST_CHANGES}
        filter = messages.honoured({**wanted, "resourceSubscriptions": self._subscribers.uris}, self._peer.discovered)
        is_needed = bool(filter) and (not self._subscribers.is_empty or bool(self._subscribers.uris))
        # The server may not honour the whole filter; asking again with the same one changes nothing.
        key = {orjson.dumps(filter, option=orjson.OPT_SORT_KEYS).decode()} if is_needed else set()
        if not self._peer.is_modern or key == self._filter_key:
            return
        before, self._sink, self._filter_key = self._sink, None, key
        if is_needed:
            params = messages.modern_params({"notifications": filter}, self._relay, None)
            id = next(self._ids)
            request = jsonrpc.request(id, methods.SUBSCRIPTIONS_LISTEN, params)
            call = Call(self._channel(), id, methods.SUBSCRIPTIONS_LISTEN, orjson.dumps(request).decode(), self._relay)
            self._sink = NotificationSink(call, self)
            try:
                self._peer.start(self._sink)
            except RelayError:
                self.sink_closed(self._sink)
        if before is not None and not before.is_done:
            before.is_done = True
            self._peer.cancel(before, "another stream took its place")

    def receive(self, sink: NotificationSink, message: dict[str, Any]) -> None:
        if sink is self._sink and message.get("method") != methods.SUBSCRIPTIONS_ACKNOWLEDGED:
            self._subscribers.announce(messages.untagged(message))

    def sink_closed(self, sink: NotificationSink) -> None:
        """The stream ended. If the server is still connected, open another one."""
        if sink is self._sink:
            self._sink = None
            self._filter_key = set()
            self._relisten(RELISTEN_S)

    def _channel(self) -> str:
        return f"{self._prefix}-{next(self._ids)}"
