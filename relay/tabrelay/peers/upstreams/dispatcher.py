"""JSON-RPC connection to an upstream on the official SDK's dispatcher: requests and notifications in both directions.

The SDK's dispatcher matches responses and cancels abandoned requests. An error that means a lost connection
becomes a `ConnectionFault` with whether the request can have arrived; the server's own errors stay `MCPError`. Only
this module and the transports use the SDK's streams. It uses no MCP method and no transport.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import anyio
from anyio.abc import TaskStatus
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCRequest

from tabrelay.config.specs import IdFormat
from tabrelay.peers.upstreams.faults import ConnectionFault, UpstreamFault
from tabserver.wire.jsonrpc import RequestId, id_flaw

log = logging.getLogger(__name__)

Params = Mapping[str, Any] | None
OnRequest = Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]]
OnNotification = Callable[[str, dict[str, Any] | None, contextvars.Context | None], None]

# Start of the SDK's error text when an HTTP stream ended before its response. Servers use the same code for other
# errors, so the code alone is not enough.
LOST_STREAM: Final = ("SSE stream ended", "SSE stream failed")


class Report(Protocol):
    """How a transport reports a fault: a request gets no response, or (id None) the connection is lost. `sent`: only
    these requests were sent."""

    def __call__(
        self, id: RequestId | None, fault: UpstreamFault, sent: Collection[RequestId] | None = None, /
    ) -> None: ...


class ReadStream(Protocol):
    """The SDK's stream of received messages."""

    async def receive(self) -> SessionMessage | Exception: ...

    async def aclose(self) -> None: ...


class WriteStream(Protocol):
    """The SDK's stream of messages to send."""

    async def send(self, item: SessionMessage, /) -> None: ...

    async def aclose(self) -> None: ...


Streams = tuple[ReadStream, WriteStream]
Inner = TypeVar("Inner", bound="Closable")


class Closable(Protocol):
    async def aclose(self) -> None: ...


class UpstreamTransport(Protocol):
    """How an upstream is connected. Faults are reported with `report`, under the id of the request."""

    @property
    def has_call_context(self) -> bool:
        """Are messages during a call received in the context in which that call was sent?"""

    def open(self, report: Report) -> AbstractAsyncContextManager[Streams]: ...

    def adapt(self, fault: UpstreamFault) -> bool:
        """The handshake failed with this fault. True if there is another way, which the next `open` uses."""


class Half(Generic[Inner]):
    """One direction of a connection, and whether it has ended."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self.is_over = False

    async def aclose(self) -> None:
        self.is_over = True
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class ReadHalf(Half[ReadStream]):
    """Received messages."""

    @property
    def last_context(self) -> contextvars.Context | None:
        """Context of the message that was read last: HTTP transports read a response in its request's context."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            while True:
                item = await self._inner.receive()
                message = item.message if isinstance(item, SessionMessage) else None
                # defence: the length of an id, in questions of upstream servers
                if isinstance(message, JSONRPCRequest) and (flaw := id_flaw(message.id)) is not None:
                    log.warning("skipped a request of the server: %s", flaw)
                    continue
                return item
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.is_over = True
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class WriteHalf(Half[WriteStream]):
    """Messages to send, and the requests that the stream accepted: all others were certainly not sent."""

    def __init__(self, inner: WriteStream) -> None:
        super().__init__(inner)
        self.handed_over: set[RequestId] = set()

    async def send(self, item: SessionMessage, /) -> None:
        id = item.message.id if isinstance(item.message, JSONRPCRequest) else None
        if id is not None:
            self.handed_over.add(id)
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.is_over = True
            if id is not None:
                self.handed_over.discard(id)
            raise


class DispatcherConnection:
    """One connection, used once. It is made before its transport opens, so that the transport can report to it."""

    def __init__(self, *, ids: IdFormat, on_request: OnRequest, on_notification: OnNotification) -> None:
        self._ids = itertools.count(1)
        self._id_format = ids
        self._on_request = on_request
        self._on_notification = on_notification
        self._dispatcher: JSONRPCDispatcher | None = None
        self._read_half: ReadHalf | None = None
        self._write_half: WriteHalf | None = None
        self._waiting: dict[RequestId, asyncio.Task[Any]] = {}
        self._faults: dict[RequestId, UpstreamFault] = {}
        self.end_fault: UpstreamFault | None = None
        self._ended = asyncio.Event()
        self._opened = asyncio.Event()

    async def run(self, streams: Streams) -> None:
        """Carry messages until the other side closes the connection, or this is cancelled."""
        self._read_half, self._write_half = ReadHalf(streams[0]), WriteHalf(streams[1])
        self._dispatcher = JSONRPCDispatcher(self._read_half, self._write_half, on_stream_exception=_log_invalid)
        try:
            await self._dispatcher.run(
                self._received_request, _ignore, self._received_notification, task_status=_Started(self._opened)
            )
        finally:
            self._close(UpstreamFault("the connection was closed", ends_connection=True))

    async def opened(self) -> None:
        """Wait until requests can be made."""
        await self._opened.wait()

    async def ended(self) -> UpstreamFault:
        """Wait until the connection can no longer be used."""
        await self._ended.wait()
        assert self.end_fault is not None
        return self.end_fault

    def report(self, id: RequestId | None, fault: UpstreamFault, sent: Collection[RequestId] | None = None, /) -> None:
        """Take a report of the transport."""
        if id is not None:
            self._fail(id, fault)
        for unsent in [other for other in self._waiting if sent is not None and other not in sent]:
            self._fail(unsent, replace(fault, delivered="no"))
        if id is None or fault.ends_connection:
            self._close(fault)

    def _fail(self, id: RequestId, fault: UpstreamFault) -> None:
        task = self._waiting.get(id)
        if task is not None and id not in self._faults:
            self._faults[id] = fault
            task.cancel()

    def _close(self, fault: UpstreamFault) -> None:
        if self.end_fault is None:
            self.end_fault = fault
            self._ended.set()

    def new_id(self) -> RequestId:
        """An id that was not used before on this connection."""
        number = next(self._ids)
        return number if self._id_format == "integer" else f"tabrelay-{number}"

    async def request(
        self,
        method: str,
        params: Params,
        *,
        id: RequestId | None = None,
        headers: dict[str, str] | None = None,
        may_cancel: bool = True,
    ) -> dict[str, Any]:
        """The result. Raises MCPError with the server's own error, or ConnectionFault if there is no response."""
        if self._dispatcher is None or self.end_fault is not None:
            raise ConnectionFault(
                UpstreamFault(
                    self.end_fault.text if self.end_fault else "not connected", delivered="no", ends_connection=True
                )
            )
        id = self.new_id() if id is None else id
        options: CallOptions = {"request_id": id, "cancel_on_abandon": may_cancel}
        if headers:
            options["headers"] = headers
        task = asyncio.current_task()
        assert self._write_half is not None and task is not None
        self._waiting[id] = task
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        except MCPError as error:
            raise self._classify(id, error) from None
        except asyncio.CancelledError:
            fault = self._faults.get(id)
            if fault is None or task.uncancel() > 0:
                raise
            raise ConnectionFault(fault) from None
        finally:
            del self._waiting[id]
            self._faults.pop(id, None)
            self._write_half.handed_over.discard(id)

    def _classify(self, id: RequestId, error: MCPError) -> Exception:
        """Separate the server's own errors from those that mean a lost connection."""
        assert self._read_half is not None and self._write_half is not None
        fault = self._faults.get(id)
        if fault is None and error.code == CONNECTION_CLOSED:
            if self._read_half.is_over or self._write_half.is_over:
                text = self.end_fault.text if self.end_fault else "the connection was closed"
                fault = UpstreamFault(
                    text, "unknown" if id in self._write_half.handed_over else "no", ends_connection=True
                )
                self._close(fault)
            elif error.error.message.startswith(LOST_STREAM):
                fault = UpstreamFault(error.error.message)
        return error if fault is None else ConnectionFault(fault)

    async def notify(self, method: str, params: Params = None, headers: dict[str, str] | None = None) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.notify(method, params, {"headers": headers} if headers else None)

    async def _received_request(
        self, context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return await self._on_request(method, dict(params) if params is not None else None)

    def _received_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """In the order of arrival, before any later message is handled."""
        assert self._read_half is not None
        self._on_notification(method, dict(params) if params is not None else None, self._read_half.last_context)
        return True


class _Started(TaskStatus[None]):
    """Sets an event when the dispatcher runs."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event

    def started(self, value: None = None) -> None:
        self._event.set()


def refusal(code: int, message: str) -> MCPError:
    """The exception that a handler of the server's requests raises to answer with an error."""
    return MCPError.from_error_data(ErrorData(code=code, message=message))


async def _ignore(context: object, method: str, params: object) -> None:
    """Every notification was handled when it arrived."""


async def _log_invalid(error: Exception) -> None:
    log.debug("skipped an invalid message: %s", type(error).__name__)
