"""One session of a server of the handshake era that many callers share: what the relay answers for the server.

The server has one log level and one set of subscriptions. It gets the union of what the callers set, and a new
connection gets it again. Pure: `forward` passes a call on, `send` makes a request of the relay itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabrelay.calls.calls import Pending, Reply
from tabrelay.translation.background_logs import BackgroundLogs
from tabrelay.translation.subscribers import Subscribers
from tabserver.wire import eras, jsonrpc, methods


class SharedSession:
    def __init__(
        self,
        about: Callable[[], dict[str, Any]],
        forward: Callable[[Pending, dict[str, Any] | None], None],
        send: Callable[[str, dict[str, Any]], None],
        *,
        has_tasks: bool = False,
    ) -> None:
        """`about`: the server's `initialize` result. `has_tasks`: requests about tasks are forwarded too."""
        self.subscribers = Subscribers()
        self.background_logs = BackgroundLogs(self.subscribers)
        self._about = about
        self._forward = forward
        self._send = send
        self._has_tasks = has_tasks

    def start(self, pending: Pending) -> None:
        """Answer a call, or forward it."""
        call, found = pending.call, pending.call.message().get("params")
        params = found if isinstance(found, dict) else None
        if call.method == methods.INITIALIZE:
            pending.end(
                Reply.with_result(
                    pending.call.id, {**self._about(), "protocolVersion": self._version(call.caller.version)}
                )
            )
        elif call.method.startswith("tasks/") and not self._has_tasks:
            pending.end(Reply.with_error(pending.call.id, jsonrpc.METHOD_NOT_FOUND, "Tasks are not available here."))
        elif call.method == methods.LOGGING_SET_LEVEL:
            self._set_level(pending, params)
        elif call.method in (methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE):
            self._subscribe(pending, params)
        else:
            self._forward(pending, params)

    def resume(self) -> None:
        """There is another connection: it gets the log level and the subscriptions that callers asked for before."""
        if self.subscribers.level is not None:
            self._send(methods.LOGGING_SET_LEVEL, {"level": self.subscribers.level})
        for uri in self.subscribers.uris:
            self._send(methods.RESOURCES_SUBSCRIBE, {"uri": uri})

    def leave(self, channel: str, *, is_connected: bool) -> None:
        """A caller is gone."""
        before = self.subscribers.level
        unwanted = self.subscribers.leave(channel)
        if is_connected and self.subscribers.level not in (None, before):
            self._send(methods.LOGGING_SET_LEVEL, {"level": self.subscribers.level})
        for uri in unwanted if is_connected else ():
            self._send(methods.RESOURCES_UNSUBSCRIBE, {"uri": uri})

    def _set_level(self, pending: Pending, params: dict[str, Any] | None) -> None:
        """The server has one level for all, the most verbose that a caller set. Each caller gets its own level."""
        before = self.subscribers.level
        if params is not None and params.get("level") in methods.LOG_LEVELS:
            self.subscribers.set_level(pending.call.channel, params["level"])
            if self.subscribers.level == before:
                pending.end(Reply.with_result(pending.call.id, {}))
                return
            params = {**params, "level": self.subscribers.level}
        self._forward(pending, params)

    def _subscribe(self, pending: Pending, params: dict[str, Any] | None) -> None:
        uri, channel = (params or {}).get("uri"), pending.call.channel
        if isinstance(uri, str) and pending.call.method == methods.RESOURCES_SUBSCRIBE:
            # defence: bounds: subscriptions of a plain page's callers
            if (refusal := self.subscribers.refusal(channel, uri)) is not None:
                pending.end(Reply.with_error(pending.call.id, jsonrpc.INVALID_PARAMS, refusal))
                return
            self.subscribers.subscribe(channel, uri)
        elif isinstance(uri, str) and not self.subscribers.unsubscribe(channel, uri):
            pending.end(Reply.with_result(pending.call.id, {}))  # another caller is still subscribed
            return
        self._forward(pending, params)

    def _version(self, wanted: str) -> str:
        """The older of the client's and the server's protocol version."""
        known = [one for one in (wanted, self._about().get("protocolVersion")) if one in eras.LEGACY_VERSIONS]
        return max(known, key=eras.LEGACY_VERSIONS.index)
