"""HTTP client of the bridge: one request and its answer; every failure becomes a `Failure`.

It imports httpx2 with the first request. A relay's token is never sent over plain HTTP: see `proven_connection`.
Redirects are followed only within the server's origin and only with the same method, since headers, token and body are
meant for that server. It contains nothing of MCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tabrelay.bridge.errors import UNPROVEN, Failure
from tabrelay.bridge.target import Address
from tabrelay.calls.proof import Unproven, is_access_token, is_relay_token, key_of
from tabrelay.system.tasks import BackgroundTasks

if TYPE_CHECKING:
    import httpx2

    from tabrelay.bridge.proven_connection import ProvenConnections

CONNECT_S: Final = 10.0
MAX_REDIRECTS: Final = 5
MAX_IDLE_CONNECTIONS: Final = 20
MAX_OLD_CLIENTS: Final = 8  # clients for earlier addresses of the relay


class HttpAnswer:
    """The head of an answer, and its body as a stream."""

    def __init__(self, response: httpx2.Response, idle_ms: int | None) -> None:
        self._response = response
        self._idle_ms = idle_ms
        self.status = response.status_code
        self.location = None if response.next_request is None else str(response.next_request.url)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        return str(self._response.headers.get("content-type", "")).partition(";")[0].strip().lower()

    def header(self, name: str) -> str | None:
        value: str | None = self._response.headers.get(name)
        return value

    def request_header(self, name: str) -> str | None:
        """A header of the request that this answer belongs to."""
        value: str | None = self._response.request.headers.get(name)
        return value

    async def chunks(self) -> AsyncGenerator[bytes]:
        with _translated(self._idle_ms):
            async for chunk in self._response.aiter_bytes():
                yield chunk

    async def read(self, limit: int) -> tuple[bytes, bool]:
        """The body up to a limit, and whether it is complete."""
        parts, size = [], 0
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    return b"".join(parts)[:limit], False
        return b"".join(parts), True


class HttpEndpoint:
    """Requests to one address, with as many connections as needed."""

    def __init__(self, address: Callable[[], Address]) -> None:
        self._address = address
        self._client: httpx2.AsyncClient | None = None
        self._client_key: tuple[Address, bytes | None] | None = None
        self._proven: ProvenConnections | None = None
        self._old_clients: list[tuple[httpx2.AsyncClient, ProvenConnections | None]] = []
        self._closing = BackgroundTasks()

    @property
    def where(self) -> str:
        return self._address().shown

    @property
    def url(self) -> str:
        return self._address().url

    @property
    def advice(self) -> str:
        return self._address().advice

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        deadline_ms: int | None,
        idle_ms: int | None,
        on_written: Callable[[], None] | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """`deadline_ms`: until the answer begins. `idle_ms`: the longest pause within it."""
        address = self._address()
        key = key_to_prove(address, headers.get("authorization"))
        client = self._client_for(address, key)
        import httpx2

        idle_s = None if idle_ms is None else idle_ms / 1000
        timeout = httpx2.Timeout(connect=CONNECT_S, read=idle_s, write=idle_s, pool=None)
        extensions: dict[str, Any] = {"timeout": timeout.as_dict()}
        if on_written is not None:
            extensions["trace"] = _written(on_written)
        with _translated(deadline_ms):
            async with asyncio.timeout(None if deadline_ms is None else deadline_ms / 1000):
                if self._proven is not None:
                    url = httpx2.URL(address.url)
                    shown = await self._proven.authorization(url.host, url.port or 80)
                    headers = {**headers, "authorization": shown}
                encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
                request = client.build_request(
                    method, address.url, content=body, headers=encoded, extensions=extensions
                )
                response = await _send(client, request)
        try:
            yield HttpAnswer(response, idle_ms)
        finally:
            await response.aclose()

    def forget_proof(self, answer: HttpAnswer) -> bool:
        """The server refused the request's Authorization. True: it was a client proof, and the next one will be new."""
        return self._proven is not None and self._proven.forget(answer.request_header("authorization"))

    def _client_for(self, address: Address, key: bytes | None) -> httpx2.AsyncClient:
        """The client for this address and key: the relay may have another port or token since the last request."""
        if self._client is None or (address, key) != self._client_key:
            if self._client is not None:
                self._old_clients.append((self._client, self._proven))  # its streams may still be in use
                if len(self._old_clients) > MAX_OLD_CLIENTS:
                    self._closing.start(_close(*self._old_clients.pop(0)))
            self._client_key = address, key
            self._client, self._proven = make_client(address, key)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            self._old_clients.append((self._client, self._proven))
            self._client = self._proven = self._client_key = None
        for client, proven in self._old_clients:
            await _close(client, proven)


async def _close(client: httpx2.AsyncClient, proven: ProvenConnections | None) -> None:
    await client.aclose()
    if proven is not None:
        await proven.close()


def key_to_prove(address: Address, authorization: str | None) -> bytes | None:
    """The key with which the server must prove itself before it gets a request. None where the header is sent
    unchanged: to servers that are not relays, and over TLS, which authenticates the server."""
    scheme, _, token = (authorization or "").partition(" ")
    if address.url.startswith("https:") or scheme.lower() != "bearer" or is_access_token(token):
        return None
    # defence: another program on the port: tokens that other flags give
    return key_of(token) if address.is_relay or is_relay_token(token) else None


def make_client(address: Address, key: bytes | None = None) -> tuple[httpx2.AsyncClient, ProvenConnections | None]:
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS)
    if key is not None:
        from tabrelay.bridge.proven_connection import ProvenConnections

        proven = ProvenConnections(key, limits)
        # No proxy: it would have to be trusted.
        return httpx2.AsyncClient(trust_env=False, transport=proven.transport, follow_redirects=False), proven
    client = httpx2.AsyncClient(
        # The system's proxy must not get requests to this computer, nor their token.
        trust_env=not address.is_loopback,
        # Without TLS no certificates are checked, and loading the system's takes longer than everything else.
        verify=address.url.startswith("https:"),
        limits=limits,
        follow_redirects=False,
    )
    return client, None


async def _send(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    extensions = request.extensions
    for _ in range(MAX_REDIRECTS):
        response = await client.send(request, stream=True)
        following = response.next_request
        if following is None or not _may_follow(request, following):
            return response
        await response.aclose()
        request = following
        request.extensions = extensions
    return await client.send(request, stream=True)


def _may_follow(sent: httpx2.Request, following: httpx2.Request) -> bool:
    here, there = sent.url, following.url
    is_same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    return is_same and sent.method == following.method and here.userinfo == there.userinfo


def _written(on_written: Callable[[], None]) -> Callable[[str, Any], Any]:
    async def trace(event: str, info: Any) -> None:
        if event.endswith("send_request_body.complete"):
            on_written()

    return trace


@contextlib.contextmanager
def _translated(limit_ms: int | None) -> Any:
    """Turns httpx2's errors and the deadline into Failures."""
    import httpx2

    try:
        yield
    except Unproven as problem:
        raise Failure(str(problem), UNPROVEN, is_delivered=False) from None
    except TimeoutError:
        raise Failure("no answer in time", "ETIMEDOUT", is_delivered=True, timeout_ms=limit_ms) from None
    except (httpx2.ReadTimeout, httpx2.WriteTimeout):
        raise Failure("no answer in time", "ETIMEDOUT", is_delivered=True, timeout_ms=limit_ms) from None
    except (httpx2.ConnectTimeout, httpx2.PoolTimeout):
        text = f"no connection within {CONNECT_S:.0f} s"
        raise Failure(text, "ETIMEDOUT", is_delivered=False) from None
    except (httpx2.ConnectError, httpx2.ProxyError, httpx2.UnsupportedProtocol) as error:
        raise Failure(*_reason(error), is_delivered=False) from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        raise Failure(*_reason(error), is_delivered=True) from None


def _reason(error: Exception) -> tuple[str, str]:
    """The reason as text and as a code: the operating system's, wherever it is in the chain of causes."""
    cause: BaseException | None = error
    while cause is not None:
        number = cause.errno if isinstance(cause, OSError) else None
        if number is not None and number in errno.errorcode:
            return os.strerror(number), errno.errorcode[number]
        inner = getattr(cause, "exceptions", ())
        cause = inner[0] if inner else cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__, type(error).__name__
