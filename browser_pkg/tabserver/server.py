"""The MCP core: a message in, messages out, for both eras at once.

It speaks JSON-RPC on channels and asks a Catalogue for tools. It does no I/O and knows neither tabs nor sockets. What
the envelope of a modern request must hold is checked by the relay before it gets here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NoReturn, Protocol

from .messages import LEVELS, Refusal, dump, is_finite, loggable, parse, read_level
from .shapes import show
from .tools import Cancel, Context, Done, InvalidArguments, Result, UnknownTool, failure, text_result
from .wire.eras import META_LOG_LEVEL, META_SERVER_INFO, MODERN_VERSIONS, Era, negotiate
from .wire.errors import BufferFull, MessageTooLarge
from .wire.events import Closed, Opened, Received
from .wire.frames import Caller, Kind
from .wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RequestId,
    error_message,
    is_request_id,
    notification,
    result_message,
)

__all__ = ["Catalogue", "Context", "InvalidArguments", "Server", "UnknownTool"]

MAX_RUNNING: Final = 64
DEFAULT_LEVEL: Final = "info"

# Outside the ranges that JSON-RPC and MCP keep for themselves.
BUSY: Final = -31013
RESULT_TOO_LARGE: Final = -31014

# A browser's tools change whenever a tab comes or goes, so nobody may keep a list without asking again.
_UNCACHED: Final = {"ttlMs": 0, "cacheScope": "private"}


class Catalogue(Protocol):
    """Where the tools are: what the core asks of the worker and its tabs."""

    def tools(self) -> list[dict[str, Any]]: ...
    def call(self, name: str, arguments: dict[str, Any], context: Context, done: Done) -> Cancel:
        """Start a call; `done` may come before this returns. Raises UnknownTool or InvalidArguments."""


@dataclass(slots=True)
class _Channel:
    """One caller. `is_single`: opened by its only request, gone with the answer. `level`: None sends no log at all."""

    id: str
    caller: Caller
    is_single: bool
    is_greeted: bool
    is_ready: bool
    level: str | None
    running: dict[RequestId, _Call] = field(default_factory=dict)


class _Call:
    """One running tool call: the Context its tool sees, and the gate that lets out one answer and nothing after it."""

    def __init__(
        self, server: Server, channel: _Channel, id: RequestId, token: RequestId | None, level: str | None
    ) -> None:
        self._server, self._channel, self._id, self._token, self._level = server, channel, id, token, level
        self._reached = -math.inf
        self.is_over = False
        self.is_cancelled = False
        self.stop: Cancel | None = None

    @property
    def caller(self) -> Caller:
        return self._channel.caller

    @property
    def request_id(self) -> RequestId:
        return self._id

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        # MCP: the progress value MUST increase with each notification, and they MUST stop after completion.
        if self.is_over or self._token is None or not is_finite(progress) or progress <= self._reached:
            return
        self._reached = progress
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if is_finite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self._server._notify(self._channel, "notifications/progress", params, self._id)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        if level not in LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(LEVELS)}")
        # A legacy caller may change its level while the call runs; a modern one says it with the request.
        floor = self._level if self._channel.caller.era is Era.MODERN else self._channel.level
        if self.is_over or floor is None or LEVELS.index(level) < LEVELS.index(floor):
            return
        params = {"level": level} | ({"logger": str(logger)} if logger else {}) | {"data": loggable(data)}
        self._server._notify(self._channel, "notifications/message", params, self._id)

    def finish(self, result: Result) -> None:
        if not self.is_over:
            self.is_over = True
            self._channel.running.pop(self._id, None)
            self._server._answer(self._channel, self._id, self._server._shaped(self._channel, result, is_call=True))

    def cancel(self, reason: str) -> None:
        """Stop it and let nothing more out."""
        self.is_over = self.is_cancelled = True
        self._channel.running.pop(self._id, None)
        if self.stop is not None:
            self.stop(reason)


class Server:
    """One named MCP server for any number of callers. It speaks by `send(channel, kind, text, id=…, related=…)`."""

    def __init__(
        self,
        name: str,
        version: str,
        catalogue: Catalogue,
        send: Callable[..., None],
        instructions: str | None = None,
    ) -> None:
        self._info = {"name": name, "version": version}
        self._catalogue = catalogue
        self._send = send
        self._instructions = instructions
        self._channels: dict[str, _Channel] = {}
        shared: dict[str, _Method] = {"tools/list": self._list_tools, "tools/call": self._call_tool}
        # What a version removed is simply absent from its table, and so answered as unknown.
        self._methods: dict[Era, dict[str, _Method]] = {
            Era.MODERN: {"server/discover": self._discover} | shared,
            Era.LEGACY: {"initialize": self._initialize, "ping": self._ping, "logging/setLevel": self._set_level}
            | shared,
        }

    def receive(self, event: Opened | Received[str] | Closed) -> None:
        """Take one event of the link. Whatever a caller sends is answered or dropped, never raised."""
        if isinstance(event, Opened):
            self._open(event.channel, event.caller, is_single=False)
        elif isinstance(event, Closed):
            self._close(event.channel, event.why)
        else:
            if event.caller is not None:
                self._open(event.channel, event.caller, is_single=True)
            channel = self._channels.get(event.channel)
            # No channel: it was closed while this was under way, and nobody waits for an answer any more.
            if channel is not None and event.kind is Kind.REQ and event.id is not None:
                self._take_request(channel, event.id, event.payload)
            elif channel is not None and event.kind is Kind.NOTE:
                self._take_notification(channel, event.payload)

    def catalogue_changed(self) -> None:
        """Tell every session that is past its handshake. Modern callers ask again when they want to know."""
        for channel in list(self._channels.values()):
            if channel.caller.era is Era.LEGACY and channel.is_ready:
                self._notify(channel, "notifications/tools/list_changed", None, None)

    # -- channels -----------------------------------------------------------------------------------------------------

    def _open(self, id: str, caller: Caller, *, is_single: bool) -> None:
        self._close(id, "opened again")
        is_ready = caller.era is Era.MODERN or caller.ready
        level = DEFAULT_LEVEL if caller.era is Era.LEGACY else None
        self._channels[id] = _Channel(id, caller, is_single, is_greeted=is_ready, is_ready=is_ready, level=level)

    def _close(self, id: str, why: str) -> None:
        channel = self._channels.pop(id, None)
        for call in list(channel.running.values()) if channel else ():
            self._stop(call, why)

    def _stop(self, call: _Call, why: str) -> None:
        # A tool whose own clean-up fails: its caller has left and is owed nothing.
        with suppress(Exception):
            call.cancel(why)

    # -- messages in --------------------------------------------------------------------------------------------------

    def _take_request(self, channel: _Channel, id: RequestId, payload: str) -> None:
        if id in channel.running:
            return  # the same request again: the answer to the first is the answer to both
        try:
            method, params = parse(payload, id)
            handler = self._methods[channel.caller.era].get(method)
            if handler is None:
                raise Refusal(METHOD_NOT_FOUND, f"Method not found: {method}")
            if not channel.is_greeted and method not in ("initialize", "ping"):
                raise Refusal(INVALID_REQUEST, f"{method} came before initialize")
            result = handler(channel, id, params)
        except Refusal as refusal:
            self._refuse(channel, id, refusal)
        except Exception as error:
            self._refuse(channel, id, Refusal(INTERNAL_ERROR, f"Internal error: {type(error).__name__}: {error}"))
        else:
            if result is not None:
                self._answer(channel, id, self._shaped(channel, result))

    def _take_notification(self, channel: _Channel, payload: str) -> None:
        try:
            method, params = parse(payload, None)
        except Refusal:
            return  # a notification has no answer, not even a bad one
        if channel.caller.era is Era.MODERN:
            return  # closing the channel is how a modern caller cancels
        if method == "notifications/initialized":
            channel.is_ready = channel.is_greeted
        elif method == "notifications/cancelled":
            id, reason = params.get("requestId"), params.get("reason")
            call = channel.running.get(id) if is_request_id(id) else None
            if call is not None:
                self._stop(call, reason if isinstance(reason, str) else "cancelled by the caller")
                # The caller no longer waits, but the stream that carries this request ends with its answer.
                self._refuse(channel, call.request_id, Refusal(REQUEST_CANCELLED, "Request cancelled"))

    # -- methods ------------------------------------------------------------------------------------------------------

    def _initialize(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> Result:
        channel.is_greeted = True
        result: Result = {
            "protocolVersion": negotiate(params.get("protocolVersion")),
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": self._info,
        }
        return result | ({"instructions": self._instructions} if self._instructions else {})

    def _ping(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> Result:
        return {}

    def _set_level(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> Result:
        channel.level = read_level(params.get("level"), "params.level")
        return {}

    def _discover(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> Result:
        result: Result = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": {"tools": {}, "logging": {}}}
        return result | ({"instructions": self._instructions} if self._instructions else {}) | _UNCACHED

    def _list_tools(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> Result:
        if params.get("cursor") is not None:
            raise Refusal(INVALID_PARAMS, "params.cursor: unknown cursor; the list has one page")
        result: Result = {"tools": self._catalogue.tools()}
        return result | (_UNCACHED if channel.caller.era is Era.MODERN else {})

    def _call_tool(self, channel: _Channel, id: RequestId, params: dict[str, Any]) -> None:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise Refusal(INVALID_PARAMS, f"params.name: expected string, got {show(name)}")
        if arguments is not None and not isinstance(arguments, dict):
            raise Refusal(INVALID_PARAMS, f"params.arguments: expected object, got {show(arguments)}")
        if len(channel.running) >= MAX_RUNNING:
            data = {"reason": "busy", "delivered": "no", "retryable": True, "server": self._info["name"]}
            raise Refusal(BUSY, f"{MAX_RUNNING} calls of this caller are running; wait for one to end", data)
        call = _Call(self, channel, id, *_wishes(channel, params))
        channel.running[id] = call
        try:
            call.stop = self._catalogue.call(name, arguments or {}, call, call.finish)
        except UnknownTool as error:
            call.cancel("unknown tool")
            self._refuse_unknown(error.name)
        except InvalidArguments as error:
            # MCP since 2025-11-25: a tool execution error, not a protocol error, so that the model can correct itself.
            call.finish(text_result(f'Invalid arguments for tool "{name}":\n{error}', is_error=True))
        except Exception as error:
            call.finish(failure(error))
        else:
            if call.is_cancelled:  # by a caller that left while a plain function was running
                self._stop(call, "cancelled")

    def _refuse_unknown(self, name: str) -> NoReturn:
        known = [str(tool.get("name")) for tool in self._catalogue.tools()]
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        if near:
            hint = f" Did you mean {' or '.join(json.dumps(word, ensure_ascii=False) for word in near)}?"
        else:
            hint = f" There are: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else ""
        shown = json.dumps(name[:128], ensure_ascii=False)
        raise Refusal(INVALID_PARAMS, f"Unknown tool {shown}.{hint or ' No tools are offered right now.'}")

    # -- messages out -------------------------------------------------------------------------------------------------

    def _shaped(self, channel: _Channel, result: Result, *, is_call: bool = False) -> Result:
        """A result in the form of the caller's era."""
        if is_call:
            result = {"content": []} | result
        if channel.caller.era is Era.LEGACY:
            return result
        meta = result.get("_meta")
        meta = (meta if isinstance(meta, dict) else {}) | {META_SERVER_INFO: self._info}
        return {"resultType": "complete"} | result | {"_meta": meta}

    def _answer(self, channel: _Channel, id: RequestId, result: Result) -> None:
        try:
            text = dump(result_message(id, result))
        except (ValueError, TypeError, RecursionError) as error:
            sorry = text_result(f"The tool's result can't be sent as JSON: {error}", is_error=True)
            text = dump(result_message(id, self._shaped(channel, sorry)))
        self._reply(channel, id, text)

    def _refuse(self, channel: _Channel, id: RequestId, refusal: Refusal) -> None:
        self._reply(channel, id, dump(error_message(id, refusal.code, refusal.message, refusal.data)))

    def _reply(self, channel: _Channel, id: RequestId, text: str) -> None:
        if self._channels.get(channel.id) is not channel:
            return
        if channel.is_single:
            del self._channels[channel.id]
        try:
            self._send(channel.id, Kind.RES, text, id=id)
        except MessageTooLarge as error:
            data = {"reason": "result_too_large", "delivered": "unknown", "retryable": False}
            data["server"] = self._info["name"]
            sorry = error_message(id, RESULT_TOO_LARGE, f"The result is too large: {error}", data)
            self._send(channel.id, Kind.RES, dump(sorry), id=id)

    def _notify(self, channel: _Channel, method: str, params: dict[str, Any] | None, related: RequestId | None) -> None:
        if self._channels.get(channel.id) is channel:
            # A notice that finds no room is lost; the answer still comes.
            with suppress(BufferFull, MessageTooLarge):
                self._send(channel.id, Kind.NOTE, dump(notification(method, params)), related=related)


_Method = Callable[[_Channel, RequestId, dict[str, Any]], Result | None]


def _wishes(channel: _Channel, params: dict[str, Any]) -> tuple[RequestId | None, str | None]:
    """Which progress and which log messages this request asked for."""
    meta = params.get("_meta", {})
    token, level = meta.get("progressToken"), meta.get(META_LOG_LEVEL)
    if token is not None and not is_request_id(token):
        raise Refusal(INVALID_PARAMS, f"params._meta.progressToken: expected string or integer, got {show(token)}")
    # 2026-07-28: without a level in the envelope no log message may be sent for the request.
    is_asked = channel.caller.era is Era.MODERN and level is not None
    return token, read_level(level, f"params._meta.{META_LOG_LEVEL}") if is_asked else None
