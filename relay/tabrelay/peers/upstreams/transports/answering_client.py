"""HTTP client for the SDK's transports that reports failures instead of raising them.

The SDK's transports end a whole connection when one request can't be sent, and report little about the cause. So this
client turns every failure into an `UpstreamFault`, reported under the id of its request with whether the server can
have received it, and gives the transport a 202. It also replaces large messages, and signs requests. It uses HTTP and
JSON-RPC, but no MCP method.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final, Protocol

import httpx2
import orjson

from tabrelay import mcp_headers
from tabrelay.config.specs import HttpSpec
from tabrelay.peers.upstreams.dispatcher import Report
from tabrelay.peers.upstreams.faults import MAX_DATA, Redactor, UpstreamFault
from tabrelay.peers.upstreams.large_messages import (
    LARGE,
    LargeMessageStore,
    MessageLimits,
    TooManyValues,
    parse,
    small_events,
)
from tabrelay.system.pipe_lines import too_long
from tabserver.wire.jsonrpc import RequestId, is_request_id

log = logging.getLogger(__name__)

CONNECT_S: Final = 10.0
WRITE_S: Final = 30.0
# A message without a response is acknowledged at once. The SDK sends nothing else until then.
ACCEPT_S: Final = 10.0
DELETE_S: Final = 2.0  # for the request that ends a session
MAX_REDIRECTS: Final = 5
MAX_ERROR_BODY: Final = 100_000
MAX_CONNECTIONS: Final = 1024
# Headers that describe the body, and are wrong for a replaced one.
BODY_HEADERS: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
HINTS: Final = ("WWW-Authenticate", "Mcp-Auth-Server", "Retry-After")
# Refused before the request was processed. After a 5xx, processing may have begun.
NOT_PROCESSED: Final = frozenset({400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 417, 421, 426, 428, 429, 431, 451})
NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class NoToken(Exception):
    """The server requires a token, and there is none. The text explains what to do."""


class SignIn(Protocol):
    """Source of tokens for one server, and of new ones when they are refused. Both methods raise NoToken."""

    async def header(self) -> str | None:
        """The Authorization header to send; None until the server has required one."""

    def proof(self, authorization: str | None, method: str, url: str) -> Mapping[str, str]:
        """More headers for one request with this token: the proof of its key, if it is bound to one."""

    async def refused(self, used: str | None, response: httpx2.Response) -> bool:
        """The server refused the token. True if there is a new one now."""


class AnsweringClient(httpx2.AsyncClient):
    """An HTTP client whose requests always get a response. Faults go to `report`."""

    def __init__(
        self, spec: HttpSpec, report: Report, redact: Redactor, limits: MessageLimits, sign_in: SignIn | None = None
    ) -> None:
        super().__init__(
            headers=dict(spec.headers),
            timeout=httpx2.Timeout(None, connect=CONNECT_S, write=WRITE_S, pool=CONNECT_S),
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
            max_redirects=MAX_REDIRECTS,
        )
        self._server = spec.name
        self._sign_in = sign_in
        self._origin = _origin(httpx2.URL(spec.url))
        self._report = report
        self._redact = redact
        self._limits = limits
        self.large_messages = LargeMessageStore()
        self._listened = False
        # HTTP+SSE: responses arrive on a separate stream, so the response to a POST is ignored.
        self.has_answer_stream = False

    async def __aenter__(self) -> AnsweringClient:
        # The SDK's HTTP+SSE transport enters the client a second time.
        return self if self._state.name == "OPENED" else await super().__aenter__()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await self._listen(request, options)
        message = _message(request)
        id, is_request = _request_id(message)
        if not is_request:
            request.extensions["timeout"] = httpx2.Timeout(ACCEPT_S).as_dict()
        ticket, text = self.large_messages.claim(message) or ("", request.content)
        if text is None:
            return self._report_fault(
                request, id if is_request else None, UpstreamFault("the request was cancelled", "no")
            )
        try:
            response = await self._send_signed(_with_content(request, text) if ticket else request, options)
            if response.next_request is not None and _is_same_server(request, response.next_request):
                ticket = ""  # the SDK follows it, with the same ticket
                return response
            return await self._received(request, response, id if is_request else None)
        except httpx2.HTTPError as error:
            return self._report_fault(request, id if is_request else None, self._error_fault(error))
        except NoToken as problem:
            return self._report_fault(
                request, id if is_request else None, UpstreamFault(str(problem), "no", status=401)
            )
        finally:
            self.large_messages.forget(ticket)

    async def _send_signed(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send with the current token; if it is refused, once more with a new one, and once more if only the nonce of
        its proof was refused. A refused request was not processed."""
        if self._sign_in is None or _origin(request.url) != self._origin:
            return await super().send(request, **options)
        tried: set[bool] = set()
        while True:
            used = await self._sign_in.header()
            if used is not None:
                request.headers["Authorization"] = used
                request.headers.update(self._sign_in.proof(used, request.method, str(request.url)))
            response = await super().send(request, **options)
            is_nonce = mcp_headers.WANTS_NONCE in response.headers.get("www-authenticate", "")
            if is_nonce in tried or not _wants_token(response):
                break
            tried.add(is_nonce)
            if not await self._sign_in.refused(used, response):
                break
            await response.aclose()
        return response

    async def _listen(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Open the server's stream (GET), or end the session (DELETE). The stream is optional; if it was open and is
        lost, the connection ends."""
        if request.method == "DELETE":
            request.extensions["timeout"] = httpx2.Timeout(DELETE_S).as_dict()
        try:
            response = await self._send_signed(request, options)
        except httpx2.HTTPError as error:
            if request.method == "GET" and (self._listened or self.has_answer_stream):
                self._report(None, self._error_fault(error, ends_line=True))
            raise
        except NoToken as problem:
            self._report(None, UpstreamFault(str(problem), "no", ends_connection=True, status=401))
            return httpx2.Response(401, request=request)
        if request.method == "GET" and response.is_success:
            self._listened = True
            if _media_type(response) == "text/event-stream":
                return self._with_small_events(response, None)
        elif request.method == "GET" and (self._listened or self.has_answer_stream) and not response.is_redirect:
            self._report(None, await self._status_fault(response, ends_line=True))
        return response

    async def _received(
        self, request: httpx2.Request, response: httpx2.Response, id: RequestId | None
    ) -> httpx2.Response:
        kind = _media_type(response)
        if response.is_success and kind == "text/event-stream":
            # defence: values of an HTTP server's event
            return self._with_small_events(response, id)
        if not response.is_success:
            fault = await self._status_fault(response, is_session=mcp_headers.SESSION_ID in request.headers)
            if kind == "application/json" and not fault.ends_connection:
                value = _loads(response.content)  # of at most MAX_ERROR_BODY
                if _is_answer(value, needs_error=True):
                    return response
            return self._report_fault(request, id, fault)
        if not await self._read(response, self._limits.size):
            return self._report_fault(request, id, self._too_large_fault())
        if id is None or self.has_answer_stream:
            return httpx2.Response(202, request=request)
        content = response.content
        try:
            value = await parse(content, self._limits.values) if kind == "application/json" else None
        except TooManyValues:
            return self._report_fault(request, id, self._too_large_fault())
        except ValueError:
            value = None
        if not _is_answer(value):
            what = "nothing" if not content.strip() else kind or "a body without a type"
            text = f"with {what} (HTTP {response.status_code}) that is no JSON-RPC response"
            return self._report_fault(request, id, UpstreamFault(text, answer="bad"))
        if len(content) > LARGE:
            ticket, response._content = self.large_messages.replace(value)
            weakref.finalize(response, self.large_messages.drop_soon, ticket)
        return response

    def _too_large_fault(self) -> UpstreamFault:
        size, values = self._limits.size, self._limits.values
        text = (
            f"its answer has more than {size:,} bytes, or more than {values:,} values, where keys and lists count twice"
        )
        return UpstreamFault(text, answer="too_large")

    def _with_small_events(self, response: httpx2.Response, id: RequestId | None) -> httpx2.Response:
        """Replace large events, which the SDK would parse in one callback. `id`: of the request that the stream
        answers."""

        def too_large(data: bytes) -> None:
            found = too_long(data)
            log.warning("%s: skipped a message of at least %d bytes", self._server, found.size)
            answered = id if id is not None or found.id is None else orjson.loads(found.id)
            if answered is not None and found.is_answer:  # the id of a question is the server's
                self._report(answered, self._too_large_fault())

        kept = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in BODY_HEADERS]
        stream = _EventStream(
            response, small_events(response.aiter_bytes(), self.large_messages, self._limits, too_large)
        )
        return httpx2.Response(response.status_code, headers=kept, stream=stream, request=response.request)

    async def _read(self, response: httpx2.Response, most: int) -> bool:
        """Read a body; False if it has more bytes than `most`. The bytes become the content of the response."""
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > most:
                    return False
        finally:
            await response.aclose()
        response._content = bytes(body)
        return True

    async def _status_fault(
        self, response: httpx2.Response, *, is_session: bool = False, ends_line: bool = False
    ) -> UpstreamFault:
        """The fault for an error status, with the server's text and helpful headers."""
        if not await self._read(response, MAX_ERROR_BODY):
            response._content = b""
        body = response.text
        explanation = _readable_text(body) or response.reason_phrase
        if response.next_request is not None:
            to = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
            explanation = f"it redirects to {to}; if that is right, configure that address"
        hints = [f"{name}: {response.headers[name]}" for name in HINTS if name in response.headers]
        text = f"HTTP {response.status_code}: {explanation}" + (f" [{'; '.join(hints)}]" if hints else "")
        status = response.status_code
        # A restarted server does not know the session. Some servers answer 400 then.
        is_forgotten = is_session and (status == 404 or (status == 400 and "session" in body.lower()))
        return self._redact.fault(
            UpstreamFault(
                f"the session has ended ({text})" if is_forgotten else text,
                "no" if status in NOT_PROCESSED else "unknown",
                ends_connection=ends_line or is_forgotten,
                status=status,
            )
        )

    def _error_fault(self, error: httpx2.HTTPError, *, ends_line: bool = False) -> UpstreamFault:
        is_unsent = isinstance(error, NEVER_SENT)
        text = str(error) or type(error).__name__
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            scheme, host, port = self._origin
            text = f"no server answers at {host}:{port or (443 if scheme == 'https' else 80)} ({text})"
        return self._redact.fault(
            UpstreamFault(text, "no" if is_unsent else "unknown", ends_connection=ends_line or is_unsent)
        )

    def _report_fault(self, request: httpx2.Request, id: RequestId | None, fault: UpstreamFault) -> httpx2.Response:
        """Report the fault, and return the response that the SDK expects for a message without an answer."""
        log.debug("%s: %s", self._server, fault.text)
        if id is not None or fault.ends_connection:
            self._report(id, fault)
        return httpx2.Response(202, request=request)


class _EventStream(httpx2.AsyncByteStream):
    """The body of an event stream, rewritten on its way to the SDK."""

    def __init__(self, response: httpx2.Response, chunks: AsyncGenerator[bytes, None]) -> None:
        self._response = response
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _with_content(request: httpx2.Request, content: bytes) -> httpx2.Request:
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in BODY_HEADERS]
    return httpx2.Request(request.method, request.url, headers=headers, content=content, extensions=request.extensions)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _wants_token(response: httpx2.Response) -> bool:
    is_too_little = "insufficient_scope" in response.headers.get("www-authenticate", "")
    return response.status_code == 401 or (response.status_code == 403 and is_too_little)


def _is_same_server(asked: httpx2.Request, next: httpx2.Request) -> bool:
    """May a redirect be followed with the message and the configured headers? Only on the same host."""
    is_upgrade = (asked.url.scheme, next.url.scheme) == ("http", "https") and asked.url.port is next.url.port is None
    is_same = (asked.url.scheme, asked.url.port) == (next.url.scheme, next.url.port) or is_upgrade
    return asked.method == next.method and asked.url.host == next.url.host and is_same


def _message(request: httpx2.Request) -> Any:
    """The message that the SDK sends: a small one, or a ticket for a large one."""
    return _loads(request.content)


def _loads(text: bytes) -> Any:
    """None if it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _request_id(message: Any) -> tuple[RequestId | None, bool]:
    """The message's id, and whether it is a request."""
    id = message.get("id") if isinstance(message, dict) else None
    return (id, "method" in message) if is_request_id(id) else (None, False)


def _is_answer(message: Any, *, needs_error: bool = False) -> bool:
    if not isinstance(message, dict):
        return False
    error = message.get("error")
    is_error = isinstance(error, dict) and isinstance(error.get("code"), int)
    return is_error or (isinstance(message.get("result"), dict) and not needs_error)


def _readable_text(body: str) -> str:
    """The text of an error response, if it is not HTML."""
    text = " ".join(body.split())[:MAX_DATA]
    return "" if text.startswith("<") else text
