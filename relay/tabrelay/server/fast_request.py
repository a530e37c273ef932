"""A request in the fast lane, in the place where uvicorn has its cycle of request and response.

It writes an answer that is there at once in one piece. When anything else happens (something is said before the answer,
the call fails, takes long or has a large result, the client leaves or reads too slowly), it makes the
cycle that uvicorn would have made, and the ordinary way carries on with the same call.

This is the one file that knows how uvicorn works inside; `fits` says whether that is still so.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tabrelay.admission.responses import DEFAULT_HEADERS
from tabrelay.calls.calls import Reply
from tabrelay.calls.started import BEGUN, Header, StartedCall
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import InFlightCounter

log = logging.getLogger(__name__)

MOST: Final = 256 * 1024  # characters of an answer; a larger one is written at the client's pace, in the ordinary way
_CYCLE: Final = (
    *("self", "scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
    *("message_event", "expect_100_continue", "keep_alive", "on_response"),
)
_USED: Final = (
    *("_start_asgi_task", "_unset_keepalive_if_required", "timeout_keep_alive_handler", "on_message_begin"),
    *("on_response_complete", "on_headers_complete", "on_body", "on_message_complete", "handle_websocket_upgrade"),
)


class FastPathProtocol(Protocol):
    """The lane, as a connection sees it."""

    waits: DeadlineQueue[Any]
    exchanges: InFlightCounter

    def knows(self, url: bytes, headers: Sequence[Header]) -> bool: ...

    def take(self, url: bytes, headers: Sequence[Header], body: bytes) -> tuple[StartedCall, Any] | None: ...

    def take_again(self, known: Any, body: bytes) -> StartedCall | None: ...


def fits() -> bool:
    """Is uvicorn as this file knows it? If not, everything goes the ordinary way."""
    made_of = tuple(inspect.signature(RequestResponseCycle.__init__).parameters)
    return made_of == _CYCLE and all(hasattr(HttpToolsProtocol, name) for name in _USED)


def _lines(headers: tuple[Header, ...]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


# What stands in an answer between its length and its body.
_STAYS: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"\r\n"
_CLOSES: Final = b"\r\n" + _lines(DEFAULT_HEADERS) + b"connection: close\r\n\r\n"


class FastConnection(HttpToolsProtocol):
    """A connection whose requests may take the lane. `is_finished`: nothing more can be written to it."""

    outlet: CycleTransport
    is_finished = False

    def finish(self) -> None:
        """Close it so that the client can read everything that was written."""
        raise NotImplementedError

    def rest(self) -> None:
        """The answer to one that did is written."""
        raise NotImplementedError


class CycleTransport:
    """What uvicorn's cycles have for a transport: closing it closes the write side first (`finish`)."""

    __slots__ = ("_http",)

    def __init__(self, http: FastConnection) -> None:
        self._http: FastConnection | None = http

    def cut(self) -> None:
        """The connection is gone, or speaks another protocol now."""
        self._http = None

    def write(self, data: bytes) -> None:
        http = self._http
        if http is not None and not http.is_finished:
            http.transport.write(data)

    def is_closing(self) -> bool:
        return self._http is None or self._http.is_finished or self._http.transport.is_closing()

    def close(self) -> None:
        if self._http is not None:
            self._http.finish()


class _Nobody:
    """Nobody waits for this request's events."""

    def set(self) -> None: ...


class RequestTemplate:
    """What uvicorn knows of a request: enough to make a scope of it, for it or for another with the same header. And
    how the answer to the last of them began."""

    __slots__ = ("_firsts", "_head", "_headers", "_scope", "url")

    def __init__(self, http: HttpToolsProtocol) -> None:
        self._scope, self.url = http.scope, http.url
        self._firsts: list[Header] = []
        self._headers: tuple[Header, ...] = ()
        self._head = b""

    def head(self, status: int, firsts: list[Header], headers: tuple[Header, ...]) -> bytes:
        """An answer's first lines, up to the number of its length. `firsts`: the headers that uvicorn puts before all
        others; it makes another list of them every second."""
        if firsts is self._firsts and headers is self._headers and status == 200:
            return self._head
        head = b"%b%b%bcontent-length: " % (STATUS_LINE[status], _lines(tuple(firsts)), _lines(headers))
        if status == 200:
            self._firsts, self._headers, self._head = firsts, headers, head
        return head

    def scope(self, length: int, begun: StartedCall) -> Any:
        size = b"%d" % length
        headers = [(name, size if name == b"content-length" else value) for name, value in self._scope["headers"]]
        return {
            **self._scope,
            "method": "POST",
            "path": self.url.decode(),
            "raw_path": self.url,
            "query_string": b"",
            "headers": headers,
            "state": dict(self._scope.get("state") or {}),
            BEGUN: begun,
        }


class FastRequest:
    """One request. What is public here uvicorn looks at, or sets, on its cycles."""

    __slots__ = ("_begun", "_body", "_http", "_letter", "_road", "keep_alive", "response_complete")

    message_event: Final = _Nobody()
    response_started = False

    def __init__(
        self,
        http: FastConnection,
        road: FastPathProtocol,
        begun: StartedCall,
        body: bytes,
        letter: RequestTemplate,
        *,
        keep_alive: bool,
    ) -> None:
        self._http = http
        self._road = road
        self._begun = begun
        self._body = body
        self._letter = letter
        self.keep_alive = keep_alive
        self.response_complete = False

    def wait(self) -> None:
        """For the answer, or for a reason to go the ordinary way."""
        pending, road = self._begun.pending, self._road
        road.exchanges.__enter__()
        road.waits.add(self)
        pending.on_wake = self._look
        if pending.has_news:
            self._look()

    def _look(self) -> None:
        reply, http = self._begun.pending.whole, self._http
        if reply is None or len(reply.said) > MOST or http.flow.write_paused or http.transport.is_closing():
            self.hand_over()
            return
        try:
            self._answer(reply)
        except Exception:  # it would end the link that the reply came by
            log.exception("An answer could not be written.")
            http.transport.close()

    def _answer(self, reply: Reply) -> None:
        http, begun, road, keep_alive = self._http, self._begun, self._road, self.keep_alive
        begun.pending.on_wake = None
        road.waits.pop(self, None)
        self.response_complete = True
        status, headers, body = begun.whole(reply)
        head = self._letter.head(status, http.server_state.default_headers, headers)
        http.transport.write(b"%b%d%b%b" % (head, len(body), _STAYS if keep_alive else _CLOSES, body))
        begun.pending.release()
        del self._begun, self._body  # the connection keeps its last ticket until the next
        road.exchanges.__exit__()
        if not keep_alive:
            http.finish()
        http.rest()

    def hand_over(self) -> None:
        """From here on the ordinary way answers. It finds a request whose body has come, and the call under way."""
        if self.response_complete:
            return
        self._begun.pending.on_wake = None
        self._road.waits.pop(self, None)
        http = self._http
        cycle = RequestResponseCycle(
            scope=self._letter.scope(len(self._body), self._begun),
            transport=http.outlet,  # type: ignore[arg-type]  # all that a cycle uses
            flow=http.flow,
            logger=http.logger,
            access_logger=http.access_logger,
            access_log=http.access_log,
            default_headers=http.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=self.keep_alive,
            on_response=http.on_response_complete,
        )
        cycle.body += self._body
        cycle.more_body = False
        cycle.message_event.set()
        current: object = http.cycle
        if current is self:  # else the client has sent its next request already, which waits for this one
            http.cycle = cycle
        http._start_asgi_task(cycle, http.app)
        # The task begins before this is called, and counts by itself: a drain sees the request all the time.
        http.loop.call_soon(self._road.exchanges.__exit__)
