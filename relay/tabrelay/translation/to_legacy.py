"""Answers modern calls with a server of the handshake era.

Each modern call becomes one legacy call on a channel of its own, a `LegacyCall` one. When the server asks its client
something in the middle of it, the modern call is answered with that question and the live one is parked; the client's
retry takes it up again. The server never notices: what it did before it asked is done once.

Knows no transport. The peer that owns a translator passes it modern calls, and receives legacy calls through
`LegacyServer`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import Busy, RelayError
from tabrelay.translation import messages
from tabrelay.translation.parked_calls import ParkedCalls
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

# A server that asks several things at once sends several messages, and its client answers them in one round. Each
# message begins the wait anew: on a busy machine a server's process may pause between two of them.
COALESCE_S: Final = 0.1
MOST_COALESCE_S: Final = 1.0


class LegacyServer(Protocol):
    """A peer whose server has done the handshake, as the translator uses it: only ever with legacy callers."""

    @property
    def server(self) -> str: ...

    @property
    def about(self) -> dict[str, Any]:
        """The server's InitializeResult."""

    def start(self, pending: Pending) -> None: ...

    def cancel(self, pending: Pending, why: str) -> None: ...

    def notify(self, channel: str, caller: Caller, payload: str) -> None: ...

    def end(self, channel: str, why: str) -> None: ...

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """Something the server wants to know. `id` is None when it ended its call with the question."""

    id: jsonrpc.RequestId | None
    method: str
    params: Any


class LegacyCall(Pending):
    """A call as the legacy server has it. `outer` is the modern request that waits for it; None while it is parked."""

    __slots__ = (
        *("asks", "expiry", "handle", "keys", "level", "offered", "outcome", "outer", "timer", "token"),
        *("asking_since", "whose"),
    )

    def __init__(self, call: Call, outer: Pending, whose: ModernToLegacy) -> None:
        super().__init__(call)
        self.outer: Pending | None = outer
        self.whose = whose
        self.level: str | None = None
        self.token: object = None  # the progress token of the request that waits now
        self.asks: dict[str, Ask] = {}
        self.asking_since = 0.0  # when the first question came that waits for others
        self.offered: list[dict[str, Any]] = []
        self.keys = itertools.count(1)
        self.outcome: dict[str, Any] | RelayError | None = None  # came while nobody waited
        self.handle: str | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.expiry: asyncio.TimerHandle | None = None

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            self.whose.heard(self, orjson.loads(notice.payload))

    def finish(self, reply: Reply) -> None:
        reply.release()
        if not self.is_done:
            self.is_done = True
            self.whose.ended(self, reply.message())

    def fail(self, error: RelayError) -> None:
        if not self.is_done:
            self.is_done = True
            self.whose.ended(self, error)


class ModernToLegacy:
    """One per server that speaks only the handshake era. The parking is shared by all of a relay."""

    def __init__(self, peer: LegacyServer, parking: ParkedCalls[LegacyCall]) -> None:
        self._peer = peer
        self._parking = parking
        self._loop = asyncio.get_running_loop()
        self._lives: dict[Pending, LegacyCall] = {}
        self._listening: set[Pending] = set()
        self._ids = itertools.count(1)

    # -- what the peer hands over -------------------------------------------------------------------------------------

    def start(self, outer: Pending) -> None:
        """Put a modern call on its way. Raises a RelayError when nothing was sent."""
        message = outer.call.message()
        method, params = outer.call.method, message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == methods.SERVER_DISCOVER:
            outer.answer(messages.discover(self._peer.about))
        elif messages.is_removed(method):
            outer.refuse(jsonrpc.METHOD_NOT_FOUND, f'"{method}" is not a method of {outer.call.caller.version}.')
        elif method == methods.SUBSCRIPTIONS_LISTEN:
            self._listen(outer, params)
        elif method in messages.MAY_ASK and not _are_answers(params.get("inputResponses", {})):
            outer.refuse(jsonrpc.INVALID_PARAMS, "inputResponses must be an object of results.")
        elif method in messages.MAY_ASK and "requestState" in params:
            self._resume(outer, params)
        else:
            # defence: params of any type: answers that came before their questions
            self._begin(outer, params, params.get("inputResponses", {}) if method in messages.MAY_ASK else {})

    def cancel(self, outer: Pending, why: str) -> None:
        live = self._lives.pop(outer, None)
        if live is not None:
            live.outer = None
            self._give_up(live, why)
        elif outer in self._listening:
            self._listening.discard(outer)
            self._peer.end(outer.call.channel, why)

    def retire(self) -> None:
        """The peer is gone for good: streams that would wait for it end."""
        for outer in list(self._listening):
            self._listening.discard(outer)
            outer.answer({"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: outer.call.id}})

    # -- a call -------------------------------------------------------------------------------------------------------

    def _begin(self, outer: Pending, params: messages.Params, offered: dict[str, Any] | None = None) -> None:
        """`offered`: answers that came before their questions. The keys are not ours, so what they fit tells."""
        call = outer.call
        level = messages.log_level(params)
        if level is not None and level not in methods.LOG_LEVELS:
            outer.refuse(
                jsonrpc.INVALID_PARAMS, f"{eras.META_LOG_LEVEL} must be one of {', '.join(methods.LOG_LEVELS)}."
            )
            return
        told = messages.legacy_params(params)
        request = jsonrpc.request(call.id, call.method, told or None)
        payload = orjson.dumps(request).decode()
        inner = Call(call.channel, call.id, call.method, payload, _as_legacy(call.caller), values=request)
        live = LegacyCall(inner, outer, self)
        live.token = messages.progress_token(params)
        live.offered = list((offered or {}).values())
        if isinstance(level, str) and "logging" in messages.visible_capabilities(self._peer.about):
            live.level = level
            self._say(inner, methods.LOGGING_SET_LEVEL, {"level": level})
        self._lives[outer] = live
        try:
            self._peer.start(live)
        except RelayError:
            self._lives.pop(outer, None)
            self._close(live)
            raise
        finally:
            inner.values = None

    def heard(self, live: LegacyCall, message: dict[str, Any]) -> None:
        """The server said something before its answer."""
        method, params = message.get("method"), message.get("params")
        if "id" in message:
            self._asked(live, Ask(message["id"], str(method), params))
        elif method == methods.CANCELLED:
            withdrawn = params.get("requestId") if isinstance(params, dict) else None
            live.asks = {key: ask for key, ask in live.asks.items() if ask.id is None or ask.id != withdrawn}
        elif live.outer is None or method == methods.ELICITATION_COMPLETE:
            return
        elif method == methods.LOG_MESSAGE:
            if messages.is_loud_enough(params, live.level):
                live.outer.notify(_notice(message))
        elif method == methods.PROGRESS and isinstance(params, dict):
            if live.token is not None:  # a retry may have brought another token than the request it continues
                live.outer.notify(_notice({**message, "params": {**params, "progressToken": live.token}}))
        else:
            live.outer.notify(_notice(message))

    def ended(self, live: LegacyCall, outcome: dict[str, Any] | RelayError) -> None:
        """The server's answer, or the end of its peer. While the call is parked, it waits for the retry."""
        self._close(live)
        live.asks.clear()
        if live.outer is None:
            live.outcome = outcome
        else:
            self._lives.pop(live.outer, None)
            self._deliver(live, live.outer, outcome)

    def _deliver(self, live: LegacyCall, outer: Pending, outcome: dict[str, Any] | RelayError) -> None:
        if isinstance(outcome, RelayError):
            outer.fail(outcome)
            return
        error = outcome.get("error")
        if not isinstance(error, dict):
            outer.answer(messages.modern_result(live.call.method, outcome.get("result"), self._peer.about))
            return
        urls = messages.url_elicitations(error) if live.call.method in messages.MAY_ASK else None
        if urls is None:
            error = messages.modern_error(error)
            outer.refuse(error["code"], str(error.get("message", "")), error.get("data"))
        else:
            self._send_to_urls(live, outer, urls)

    def _send_to_urls(self, live: LegacyCall, outer: Pending, urls: list[messages.Params]) -> None:
        """The server wants the user elsewhere first. Its call is over; the retry will make it anew."""
        needed = messages.lacking(outer.call.caller.capabilities, methods.ELICITATION_CREATE, {"mode": "url"})
        if not urls:
            outer.refuse(
                jsonrpc.INTERNAL_ERROR, "The server needs the user to open an address, and does not say which."
            )
        elif needed is not None:
            text = "The server needs the user to open an address, and this client can't."
            outer.refuse(jsonrpc.MISSING_CAPABILITY, text, {"requiredCapabilities": needed})
        elif not self._parking.has_room(outer.call.caller.principal):
            outer.fail(Busy("Too many questions to this client are open already.", retry_after_ms=1000))
        else:
            live.asks = {
                _key(live, methods.ELICITATION_CREATE): Ask(None, methods.ELICITATION_CREATE, params) for params in urls
            }
            live.outer = outer
            self._park(live)

    # -- asking the client --------------------------------------------------------------------------------------------

    def _asked(self, live: LegacyCall, ask: Ask) -> None:
        caller = live.outer.call.caller if live.outer is not None else live.call.caller
        if live.call.method not in messages.MAY_ASK or ask.method not in messages.MAY_BE_ASKED:
            self._refuse(live, ask, f"{ask.method} can't be asked during {live.call.method}.")
        elif messages.lacking(caller.capabilities, ask.method, ask.params) is not None:
            self._refuse(live, ask, f"The client of this call can't do {ask.method}.")
        elif (given := next((a for a in live.offered if messages.fits(ask.method, ask.params, a)), None)) is not None:
            live.offered.remove(given)
            assert ask.id is not None
            self._answer(live, jsonrpc.result_message(ask.id, given))
        else:
            live.asks[_key(live, ask.method)] = ask
            if live.outer is not None:
                self._park_soon(live)

    def _park_soon(self, live: LegacyCall) -> None:
        now = self._loop.time()
        if live.timer is None:
            live.asking_since = now
        else:
            # defence: questions that a server asks one after another
            live.timer.cancel()
        left_s = live.asking_since + MOST_COALESCE_S - now
        live.timer = self._loop.call_later(max(0.0, min(COALESCE_S, left_s)), self._park, live)

    def _park(self, live: LegacyCall) -> None:
        """Answer the request that waits with the questions that are open, and keep the call for its retry."""
        live.timer = None
        outer = live.outer
        if outer is None or not live.asks:
            return
        principal = outer.call.caller.principal
        if not self._parking.has_room(principal):
            for ask in live.asks.values():
                self._refuse(live, ask, "Too many questions to this client are open already.")
            live.asks.clear()
            return
        self._lives.pop(outer, None)
        live.outer = None
        # Computed only here: few calls ask, and it takes 30 ms for the largest.
        digest = messages.digest(self._peer.server, live.call.method, live.call.message().get("params") or {})
        live.handle = self._parking.park(live, principal, digest, self._loop.time())
        live.expiry = self._loop.call_later(self._parking.ttl_s, self._expired, live)
        requests = {key: messages.modern_ask(ask.method, ask.params) for key, ask in live.asks.items()}
        outer.answer({"resultType": "input_required", "inputRequests": requests, "requestState": live.handle})

    def _resume(self, outer: Pending, params: messages.Params) -> None:
        """A retry: the answers go to the server, whose call this request waits for from now on."""
        call, answers = outer.call, params.get("inputResponses", {})
        digest = messages.digest(self._peer.server, call.method, params)
        live = self._parking.take(params.get("requestState"), call.caller.principal, digest, self._loop.time())
        if live is None:
            # Foreign, used, expired, for another request: whoever guesses learns nothing from the answer.
            outer.refuse(jsonrpc.INVALID_PARAMS, "requestState is not valid (any more). Make the call again.")
            return
        # A client that says something else of itself now has come by another session; its call is where it was.
        live.whose._take_up(live, outer, params, answers)

    def _take_up(self, live: LegacyCall, outer: Pending, params: messages.Params, answers: dict[str, Any]) -> None:
        live.handle = None
        if live.expiry is not None:
            live.expiry.cancel()
        live.outer = outer
        live.token = messages.progress_token(params)
        given = {key: live.asks.pop(key) for key in answers if key in live.asks}
        if live.outcome is not None:
            self._deliver(live, outer, live.outcome)
        elif live.is_done:
            self._continue(live, outer, params, [answers[key] for key in given])
        else:
            self._lives[outer] = live
            for key, ask in given.items():
                assert ask.id is not None
                self._answer(live, jsonrpc.result_message(ask.id, answers[key]))
            self._park(live)  # asks again for what is missing

    def _continue(
        self, live: LegacyCall, outer: Pending, params: messages.Params, answers: list[dict[str, Any]]
    ) -> None:
        """The user was sent to addresses: make the call again, if that is where they went."""
        if any(answer.get("action") != "accept" for answer in answers):
            outer.refuse(jsonrpc.INVALID_PARAMS, "The user did not open the address that the server needs.")
        elif live.asks:
            self._park(live)
        else:
            self._begin(outer, params)

    def _refuse(self, live: LegacyCall, ask: Ask, text: str) -> None:
        if ask.id is not None:
            self._answer(live, jsonrpc.error_message(ask.id, jsonrpc.METHOD_NOT_FOUND, text))

    def _answer(self, live: LegacyCall, message: dict[str, Any]) -> None:
        self._peer.notify(live.call.channel, live.call.caller, orjson.dumps(message).decode())

    def _expired(self, live: LegacyCall) -> None:
        if live.handle is not None:
            self._parking.drop(live.handle)
            live.handle = None
            self._give_up(live, "the client did not answer in time")

    def _give_up(self, live: LegacyCall, why: str) -> None:
        if not live.is_done:
            live.is_done = True
            self._peer.cancel(live, why)
        self._close(live)

    def _close(self, live: LegacyCall) -> None:
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        if live.level is not None:
            self._peer.end(live.call.channel, "the call is over")

    # -- listening ----------------------------------------------------------------------------------------------------

    def _listen(self, outer: Pending, params: messages.Params) -> None:
        call, wanted = outer.call, params.get("notifications")
        if not isinstance(wanted, dict):
            outer.refuse(jsonrpc.INVALID_PARAMS, "params.notifications is missing.")
            return
        kept = messages.honoured(wanted, self._peer.about)
        told = {"notifications": kept}
        ack = jsonrpc.notification(methods.SUBSCRIPTIONS_ACKNOWLEDGED, told)
        outer.notify(_notice(messages.tagged(ack, call.id)))

        def heard(notice: Notice) -> None:
            message = orjson.loads(notice.payload)
            if messages.is_wanted(message, kept):
                outer.notify(_notice(messages.tagged(message, call.id)))

        caller = _as_legacy(call.caller)
        self._listening.add(outer)
        self._peer.listen(call.channel, caller, heard)
        for uri in kept.get("resourceSubscriptions", ()):
            self._say(Call(call.channel, call.id, call.method, "", caller), methods.RESOURCES_SUBSCRIBE, {"uri": uri})

    def _say(self, beside: Call, method: str, params: dict[str, Any]) -> None:
        """A request of our own on a call's channel. What it answers changes nothing."""
        id = f"relay-{next(self._ids)}"
        payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
        with suppress(RelayError):
            self._peer.start(Pending(Call(beside.channel, id, method, payload, beside.caller)))


def _as_legacy(caller: Caller) -> Caller:
    return Caller(Era.LEGACY, eras.NEWEST_LEGACY, caller.principal, caller.client, caller.capabilities, ready=True)


def _are_answers(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(answer, dict) for answer in value.values())


def _key(live: LegacyCall, method: str) -> str:
    return f"{method.partition('/')[0]}-{next(live.keys)}"


def _notice(message: dict[str, Any]) -> Notice:
    return Notice(orjson.dumps(message).decode())
