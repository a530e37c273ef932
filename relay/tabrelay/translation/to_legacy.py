"""Translator from modern calls to a server of the handshake era.

Each modern call becomes one legacy call on its own channel. When the server asks its client something during the call,
the modern request is answered with that question and the legacy call is parked; the client's retry continues it. The
server does not notice, and its work before the question is done once. Knows no transport: the peer that owns a
translator passes modern calls in and receives legacy calls through `LegacyServer`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import Busy, RelayError
from tabrelay.translation import messages
from tabrelay.translation.legacy_call import Ask, LegacyCall, LegacyServer, Probe
from tabrelay.translation.parked_calls import ParkedCalls
from tabrelay.translation.question_round import QuestionRound
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller


class ModernToLegacy:
    """One per server that supports only the handshake era. All translators of a relay share `parked`."""

    def __init__(self, peer: LegacyServer, parked: ParkedCalls[LegacyCall]) -> None:
        self._peer = peer
        self._parked = parked
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Pending, LegacyCall] = {}
        self._listening: set[Pending] = set()
        self._ids = itertools.count(1)

    # -- called by the peer --------------------------------------------------------------------------------------------

    def start(self, outer: Pending) -> None:
        """Start a modern call. Raises a RelayError if nothing was sent."""
        message = outer.call.message()
        method, params = outer.call.method, message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == methods.SERVER_DISCOVER:
            outer.end(Reply.with_result(outer.call.id, messages.discover(self._peer.about)))
        elif messages.is_removed(method):
            outer.end(
                Reply.with_error(
                    outer.call.id,
                    jsonrpc.METHOD_NOT_FOUND,
                    f'"{method}" is not a method of {outer.call.caller.version}.',
                )
            )
        elif method == methods.SUBSCRIPTIONS_LISTEN:
            self._listen(outer, params)
        elif method in messages.MAY_ASK and not _are_answers(params.get("inputResponses", {})):
            outer.end(
                Reply.with_error(outer.call.id, jsonrpc.INVALID_PARAMS, "inputResponses must be an object of results.")
            )
        elif method in messages.MAY_ASK and "requestState" in params:
            self._resume(outer, params)
        else:
            # defence: params of any type: answers that came before their questions
            self._begin(outer, params, params.get("inputResponses", {}) if method in messages.MAY_ASK else {})

    def cancel(self, outer: Pending, why: str) -> None:
        inner = self._calls.pop(outer, None)
        if inner is not None:
            inner.outer = None
            self._give_up(inner, why)
        elif outer in self._listening:
            self._listening.discard(outer)
            self._peer.end(outer.call.channel, why)

    def retire(self) -> None:
        """The peer is permanently gone: end the listen streams that would wait for it."""
        for outer in list(self._listening):
            self._listening.discard(outer)
            outer.end(
                Reply.with_result(
                    outer.call.id, {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: outer.call.id}}
                )
            )

    # -- a call --------------------------------------------------------------------------------------------------------

    def _begin(self, outer: Pending, params: messages.Params, offered: dict[str, Any] | None = None) -> None:
        """`offered`: answers that came before their questions. Their keys are foreign, so content decides the match."""
        call = outer.call
        level = messages.log_level(params)
        if level is not None and level not in methods.LOG_LEVELS:
            outer.end(
                Reply.with_error(
                    outer.call.id,
                    jsonrpc.INVALID_PARAMS,
                    f"{eras.META_LOG_LEVEL} must be one of {', '.join(methods.LOG_LEVELS)}.",
                )
            )
            return
        forwarded = messages.legacy_params(params)
        request = jsonrpc.request(call.id, call.method, forwarded or None)
        payload = orjson.dumps(request).decode()
        inner_call = Call(call.channel, call.id, call.method, payload, _as_legacy(call.caller), values=request)
        inner = LegacyCall(inner_call, outer, self)
        inner.token = messages.progress_token(params)
        inner.offered = list((offered or {}).values())
        if isinstance(level, str) and "logging" in messages.visible_capabilities(self._peer.about):
            inner.level = level
            self._send_request(inner_call, methods.LOGGING_SET_LEVEL, {"level": level})
        self._calls[outer] = inner
        try:
            self._peer.start(inner)
        except RelayError:
            self._calls.pop(outer, None)
            self._close(inner)
            raise
        finally:
            inner_call.values = None

    def receive(self, inner: LegacyCall, message: dict[str, Any]) -> None:
        """Handle a message that the server sent before its answer."""
        method, params = message.get("method"), message.get("params")
        if "id" in message:
            self._asked(inner, Ask(message["id"], str(method), params))
        elif method == methods.CANCELLED:
            withdrawn = params.get("requestId") if isinstance(params, dict) else None
            inner.asks = {key: ask for key, ask in inner.asks.items() if ask.id is None or ask.id != withdrawn}
        elif inner.outer is None or method == methods.ELICITATION_COMPLETE:
            return
        elif method == methods.LOG_MESSAGE:
            if messages.is_level_enabled(params, inner.level):
                inner.outer.notify(_notice(message))
        elif method == methods.PROGRESS and isinstance(params, dict):
            if inner.token is not None:  # a retry may have another token than the request it continues
                inner.outer.notify(_notice({**message, "params": {**params, "progressToken": inner.token}}))
        else:
            inner.outer.notify(_notice(message))

    def ended(self, inner: LegacyCall, outcome: dict[str, Any] | RelayError) -> None:
        """Handle the server's answer, or the loss of its peer. Of a parked call it is kept for the retry."""
        self._close(inner)
        inner.asks.clear()
        if inner.outer is None:
            inner.outcome = outcome
        else:
            self._calls.pop(inner.outer, None)
            self._deliver(inner, inner.outer, outcome)

    def _deliver(self, inner: LegacyCall, outer: Pending, outcome: dict[str, Any] | RelayError) -> None:
        if isinstance(outcome, RelayError):
            outer.end(outcome)
            return
        error = outcome.get("error")
        if not isinstance(error, dict):
            outer.end(
                Reply.with_result(
                    outer.call.id, messages.modern_result(inner.call.method, outcome.get("result"), self._peer.about)
                )
            )
            return
        urls = messages.url_elicitations(error) if inner.call.method in messages.MAY_ASK else None
        if urls is None:
            error = messages.modern_error(error)
            outer.end(Reply.with_server_error(outer.call.id, error))
        else:
            self._send_to_urls(inner, outer, urls)

    def _send_to_urls(self, inner: LegacyCall, outer: Pending, urls: list[messages.Params]) -> None:
        """The server requires the user to open URLs first. Its call has ended; the retry starts a new one."""
        needed = messages.missing_capability(
            outer.call.caller.capabilities, methods.ELICITATION_CREATE, {"mode": "url"}
        )
        if not urls:
            outer.end(
                Reply.with_error(
                    outer.call.id,
                    jsonrpc.INTERNAL_ERROR,
                    "The server needs the user to open an address, and does not name it.",
                )
            )
        elif needed is not None:
            text = "The server needs the user to open an address, and this client can't."
            outer.end(
                Reply.with_error(outer.call.id, jsonrpc.MISSING_CAPABILITY, text, {"requiredCapabilities": needed})
            )
        elif not self._parked.has_room(outer.call.caller.principal):
            outer.end(Busy("Too many questions to this client are open already.", retry_after_ms=1000))
        else:
            inner.asks = {
                _key(inner, methods.ELICITATION_CREATE): Ask(None, methods.ELICITATION_CREATE, params)
                for params in urls
            }
            inner.outer = outer
            self._park(inner)

    # -- asking the client ---------------------------------------------------------------------------------------------

    def _asked(self, inner: LegacyCall, ask: Ask) -> None:
        caller = inner.outer.call.caller if inner.outer is not None else inner.call.caller
        if inner.call.method not in messages.MAY_ASK or ask.method not in messages.MAY_BE_ASKED:
            self._refuse(inner, ask, f"{ask.method} can't be asked during {inner.call.method}.")
        elif messages.missing_capability(caller.capabilities, ask.method, ask.params) is not None:
            self._refuse(inner, ask, f"The client of this call can't do {ask.method}.")
        elif (given := next((a for a in inner.offered if messages.fits(ask.method, ask.params, a)), None)) is not None:
            inner.offered.remove(given)
            assert ask.id is not None
            self._answer(inner, jsonrpc.result_message(ask.id, given))
        else:
            inner.asks[_key(inner, ask.method)] = ask
            if inner.outer is not None:
                if inner.round is None:
                    inner.round = QuestionRound(self._loop, partial(self._ping, inner), partial(self._park, inner))
                inner.round.add()

    def _ping(self, inner: LegacyCall, answered: Callable[[], None]) -> Callable[[], None] | None:
        id = f"relay-{next(self._ids)}"
        payload = orjson.dumps(jsonrpc.request(id, methods.PING)).decode()
        probe = Probe(Call(inner.call.channel, id, methods.PING, payload, inner.call.caller), answered)
        try:
            self._peer.start(probe)
        except RelayError:
            return None
        return partial(self._peer.cancel, probe, "its answer is no longer needed")

    def _park(self, inner: LegacyCall) -> None:
        """Answer the waiting request with the open questions, and keep the call for its retry."""
        inner.end_round()
        outer = inner.outer
        if outer is None or not inner.asks:
            return
        principal = outer.call.caller.principal
        if not self._parked.has_room(principal):
            for ask in inner.asks.values():
                self._refuse(inner, ask, "Too many questions to this client are open already.")
            inner.asks.clear()
            return
        self._calls.pop(outer, None)
        inner.outer = None
        # Computed only here: few calls ask, and the largest take 30 ms.
        digest = messages.digest(self._peer.server, inner.call.method, inner.call.message().get("params") or {})
        inner.handle = self._parked.park(inner, principal, digest, self._loop.time())
        inner.expiry = self._loop.call_later(self._parked.ttl_s, self._expired, inner)
        requests = {key: messages.modern_ask(ask.method, ask.params) for key, ask in inner.asks.items()}
        outer.end(
            Reply.with_result(
                outer.call.id, {"resultType": "input_required", "inputRequests": requests, "requestState": inner.handle}
            )
        )

    def _resume(self, outer: Pending, params: messages.Params) -> None:
        """Handle a retry: send the answers to the server; from now on this request waits for its call."""
        call, answers = outer.call, params.get("inputResponses", {})
        digest = messages.digest(self._peer.server, call.method, params)
        inner = self._parked.take(params.get("requestState"), call.caller.principal, digest, self._loop.time())
        if inner is None:
            # One message for a foreign, used or expired handle and for another request: guessing reveals nothing.
            outer.end(
                Reply.with_error(
                    outer.call.id, jsonrpc.INVALID_PARAMS, "requestState is not valid (any more). Make the call again."
                )
            )
            return
        # A client whose description changed arrives through another translator; the call stays with its own.
        inner.translator.continue_call(inner, outer, params, answers)

    def continue_call(
        self, inner: LegacyCall, outer: Pending, params: messages.Params, answers: dict[str, Any]
    ) -> None:
        inner.handle = None
        if inner.expiry is not None:
            inner.expiry.cancel()
        inner.outer = outer
        inner.token = messages.progress_token(params)
        given = {key: inner.asks.pop(key) for key in answers if key in inner.asks}
        if inner.outcome is not None:
            self._deliver(inner, outer, inner.outcome)
        elif inner.is_done:
            self._retry_after_urls(inner, outer, params, [answers[key] for key in given])
        else:
            self._calls[outer] = inner
            for key, ask in given.items():
                assert ask.id is not None
                self._answer(inner, jsonrpc.result_message(ask.id, answers[key]))
            self._park(inner)  # asks again for missing answers

    def _retry_after_urls(
        self, inner: LegacyCall, outer: Pending, params: messages.Params, answers: list[dict[str, Any]]
    ) -> None:
        """The user was asked to open URLs: start the call again if all were accepted."""
        if any(answer.get("action") != "accept" for answer in answers):
            outer.end(
                Reply.with_error(
                    outer.call.id, jsonrpc.INVALID_PARAMS, "The user did not open the address that the server needs."
                )
            )
        elif inner.asks:
            self._park(inner)
        else:
            self._begin(outer, params)

    def _refuse(self, inner: LegacyCall, ask: Ask, text: str) -> None:
        if ask.id is not None:
            self._answer(inner, jsonrpc.error_message(ask.id, jsonrpc.METHOD_NOT_FOUND, text))

    def _answer(self, inner: LegacyCall, message: dict[str, Any]) -> None:
        self._peer.notify(inner.call.channel, inner.call.caller, orjson.dumps(message).decode())

    def _expired(self, inner: LegacyCall) -> None:
        if inner.handle is not None:
            self._parked.drop(inner.handle)
            inner.handle = None
            self._give_up(inner, "the client did not answer in time")

    def _give_up(self, inner: LegacyCall, why: str) -> None:
        if not inner.is_done:
            inner.is_done = True
            self._peer.cancel(inner, why)
        self._close(inner)

    def _close(self, inner: LegacyCall) -> None:
        inner.end_round()
        if inner.level is not None:
            self._peer.end(inner.call.channel, "the call is over")

    # -- listening -----------------------------------------------------------------------------------------------------

    def _listen(self, outer: Pending, params: messages.Params) -> None:
        call, wanted = outer.call, params.get("notifications")
        if not isinstance(wanted, dict):
            outer.end(Reply.with_error(outer.call.id, jsonrpc.INVALID_PARAMS, "params.notifications is missing."))
            return
        kept = messages.honoured(wanted, self._peer.about)
        forwarded = {"notifications": kept}
        ack = jsonrpc.notification(methods.SUBSCRIPTIONS_ACKNOWLEDGED, forwarded)
        outer.notify(_notice(messages.tagged(ack, call.id)))

        def receive(notice: Notice) -> None:
            message = orjson.loads(notice.payload)
            if messages.is_wanted(message, kept):
                outer.notify(_notice(messages.tagged(message, call.id)))

        caller = _as_legacy(call.caller)
        self._listening.add(outer)
        self._peer.listen(call.channel, caller, receive)
        for uri in kept.get("resourceSubscriptions", ()):
            self._send_request(
                Call(call.channel, call.id, call.method, "", caller), methods.RESOURCES_SUBSCRIBE, {"uri": uri}
            )

    def _send_request(self, beside: Call, method: str, params: dict[str, Any]) -> None:
        """Send a request of the relay on a call's channel. Its response is ignored."""
        id = f"relay-{next(self._ids)}"
        payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
        with suppress(RelayError):
            self._peer.start(Pending(Call(beside.channel, id, method, payload, beside.caller)))


def _as_legacy(caller: Caller) -> Caller:
    return Caller(Era.LEGACY, eras.NEWEST_LEGACY, caller.principal, caller.client, caller.capabilities, ready=True)


def _are_answers(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(answer, dict) for answer in value.values())


def _key(inner: LegacyCall, method: str) -> str:
    return f"{method.partition('/')[0]}-{next(inner.keys)}"


def _notice(message: dict[str, Any]) -> Notice:
    return Notice(orjson.dumps(message).decode())
