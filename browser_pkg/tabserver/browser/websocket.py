"""WebSocket dialer of the worker: proof, socket, and the reason of a failed handshake.

A dial first lets the relay prove itself over HTTP (P2 to P4), then opens the WebSocket. Each attempt ends with an open
socket or with no socket at all, also when it is aborted. When to dial again is decided in `transport`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any, Final, Protocol

import js
from pyodide.ffi import JsException, create_proxy, to_js

from ..transport.dialing import Abort, DialError
from ..wire.frames import BEARER_PREFIX, SUBPROTOCOL, split
from .python_bridge import PythonBridge, guarded, report
from .shared_buffer import SharedBuffer
from .values import Aborter, release_proxies

_MAX_REASON: Final = 123  # bytes, RFC 6455 section 5.5: a control frame has 125, the code takes two
_SMALL_BUFFER: Final = 64 * 1024  # bytes
_DRAINING: Final = 503  # the status of a relay that is about to restart


class CallRecorder(Protocol):
    """Records the calls that JavaScript ran by itself: see worker/js_calls.py."""

    @property
    def last_received(self) -> int: ...
    def record(self, entries: str) -> int: ...
    def run(self, number: int, given: str) -> str | None: ...
    def finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None: ...
    def next_seq(self) -> int: ...


class WebSocket:
    """An open WebSocket."""

    def __init__(self, bridge: PythonBridge, socket: Any) -> None:
        self._socket = socket
        self._send = bridge.sender(socket)
        self._buffered = 0

    def send(self, header: str, payload: str | None) -> None:
        self._buffered = self._send(header if payload is None else f"{header}\n{payload}")

    def close(self, code: int, reason: str) -> None:
        # A script may pass only 1000 and 3000-4999; the browser reserves the other codes for itself.
        allowed = code if code == 1000 or 3000 <= code <= 4999 else 1000
        self._socket.close(allowed, reason.encode(errors="replace")[:_MAX_REASON].decode(errors="ignore"))

    @property
    def buffered(self) -> int:
        # Between our own writes the value only decreases: while the last one was small, it is not read again.
        if self._buffered > _SMALL_BUFFER:
            self._buffered = int(self._socket.bufferedAmount)
        return self._buffered


class Dialer:
    """Opens sockets to one server of one relay, and finds the reason if one does not open."""

    def __init__(
        self,
        bridge: PythonBridge,
        buffer: SharedBuffer,
        relay: str,
        server: str,
        recorder: Callable[[], CallRecorder],
    ) -> None:
        self._bridge = bridge
        self._buffer = buffer
        self._relay = relay.rstrip("/")
        self._server = server
        self._recorder = recorder
        self.token = ""

    async def dial(
        self, abort: Abort, on_message: Callable[[str, str | None], None], on_close: Callable[[int, str], None]
    ) -> WebSocket:
        assert isinstance(abort, Aborter), "a dial in a browser is aborted by an AbortController"
        if not self.token:
            raise DialError("not_paired", "This page is not paired with the relay. Run: tabrelay pair", True)
        # After failures Chromium delays sockets, by seconds in the end, but never a fetch: so fetch first, then dial.
        bearer, signature = await self._prove(abort)
        dialling = _SocketAttempt(self._bridge, self._buffer, self._recorder(), on_message, on_close)
        try:
            return await dialling.open(self._url(), _protocols(bearer), signature, abort)
        except JsException as error:
            raise DialError("forbidden", f"The browser refuses to dial {self._url()}: {error}", True) from error
        except _NotOpened:
            raise await self._why_refused(abort) from None

    def _url(self) -> str:
        return f"ws{self._relay.removeprefix('http')}/{self._server}"

    async def _prove(self, abort: Aborter) -> tuple[str, str]:
        """P2 to P4: the proof for the relay, and the text that its WebSocket begins with (P6). Nothing is sent before.

        A program that did not prove to be the relay can't end the attempts (L10): the relay may come back."""
        proof = json.loads(await self._bridge.prove(self._relay, self.token, abort.signal))
        if abort.aborted:
            raise self._unreachable(abort)
        if "bearer" not in proof:
            raise DialError(proof["why"], proof["message"], False)
        return proof["bearer"], proof["socket"]

    async def _check_health(self, abort: Aborter) -> None:
        try:
            response = await js.fetch(f"{self._relay}/-/healthz", cache="no-store", signal=abort.signal)
        except JsException as error:
            raise self._unreachable(abort) from error
        # A draining relay still accepts a browser that has the result of a call: only the dial shows it.
        if not response.ok and response.status != _DRAINING:
            raise DialError("relay_down", f"{self._relay} answers {response.status}: is that the relay?", False)

    async def _why_refused(self, abort: Aborter) -> DialError:
        """A browser reports only that a handshake failed. The same request over HTTP gives the reason."""
        try:
            # The relay may have ended, and another program may have its port.
            bearer, _ = await self._prove(abort)
        except DialError as error:
            return error
        headers = to_js(
            {"Authorization": f"Bearer {bearer}", "Accept": "application/json"},
            dict_converter=js.Object.fromEntries,
        )
        url = f"{self._relay}/-/probe/{self._server}"
        try:
            response = await js.fetch(url, cache="no-store", headers=headers, signal=abort.signal)
            reason, text = await _reason(response)
        except JsException:
            return await self._why_unreadable(abort)
        if abort.aborted:
            return self._unreachable(abort)
        if response.status == 401:
            return DialError("unauthorized", text or "The relay does not know this token. Run: tabrelay pair", True)
        if response.status == 403:
            is_taken = reason in ("taken", "reserved")  # by a page, which may be closed
            why = "taken" if is_taken or reason == "configured" else "forbidden"
            return DialError(why, text or f'This page may not serve "{self._server}".', not is_taken)
        if response.status == _DRAINING:
            return DialError("restarting", "The relay is stopping or restarting.", False)
        return DialError("lost", "The relay responds, but its WebSocket could not be opened.", False)

    async def _why_unreadable(self, abort: Aborter) -> DialError:
        """The browser hides the response. If there is a relay, its CORS headers do not allow this page's origin."""
        try:
            await self._check_health(abort)
        except DialError as error:
            return error
        origin = js.location.origin
        text = (
            f"The relay does not accept pages of {origin}: this page is not paired (any more). Retry to ask for it, or"
        )
        return DialError("forbidden", f"{text} start the relay with: --allow-origin {origin}", True)

    def _unreachable(self, abort: Aborter) -> DialError:
        if abort.aborted:
            return DialError("timeout", f"The relay at {self._relay} did not answer in time.", False)
        return DialError("relay_down", f"No relay answers at {self._relay}. Start it with: tabrelay serve", False)


def _protocols(bearer: str) -> list[str]:
    # A script can't set headers of a WebSocket handshake; the subprotocols are the only field it controls.
    return [SUBPROTOCOL, BEARER_PREFIX + base64.urlsafe_b64encode(bearer.encode()).decode().rstrip("=")]


class _NotOpened(Exception):
    """The socket was aborted, or closed before it opened; the browser gives no reason."""


class _SocketAttempt:
    """One attempt: a socket that is opening, and its listeners until it closes."""

    def __init__(
        self,
        bridge: PythonBridge,
        buffer: SharedBuffer,
        recorder: CallRecorder,
        on_message: Callable[[str, str | None], None],
        on_close: Callable[[int, str], None],
    ) -> None:
        self._bridge = bridge
        self._buffer = buffer
        self._on_message = on_message
        self._on_close = on_close
        self._recorder = recorder
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_handed_over = False
        self._is_closed = False
        self._proxies: list[Any] = []

    async def open(self, url: str, protocols: list[str], signature: str, abort: Aborter) -> WebSocket:
        if abort.aborted:
            raise _NotOpened
        listeners = [
            self._listener(guarded(self._opened, "a socket's opening failed")),
            self._listener(self._received),
            self._listener(guarded(self._closed, "a socket's end could not be handled")),
        ]
        calls = [self._listener(each) for each in (self._record, self._run, self._finish, self._next_seq)]
        try:
            socket = self._bridge.openSocket(url, to_js(protocols), signature, *listeners, *calls)
        except JsException:
            release_proxies(self._proxies)
            raise
        on_abort = create_proxy(lambda _event: self._aborted())
        abort.signal.addEventListener("abort", on_abort)
        try:
            await self._outcome
            # This task may resume late: check again before the socket counts as open.
            if abort.aborted or self._is_closed:
                raise _NotOpened
        except BaseException:
            # Aborted or cancelled: a socket that is closed before it opened never opens later.
            socket.close()
            raise
        finally:
            abort.signal.removeEventListener("abort", on_abort)
            on_abort.destroy()
        self._is_handed_over = True
        return WebSocket(self._bridge, socket)

    def _listener(self, function: Callable[..., object]) -> Any:
        proxy = create_proxy(function)
        self._proxies.append(proxy)
        return proxy

    def _opened(self) -> None:
        if not self._outcome.done():
            self._outcome.set_result(None)

    def _received(self, frame: str | int) -> int:
        """Returns the number of the last frame received."""
        # The relay sends nothing before the `hello`, so no frame can be lost before the hand-over.
        if not self._is_handed_over:
            return -1
        try:
            self._on_message(*split(self._text(frame)))
            return self._recorder.last_received
        except Exception as error:
            report(error, "a frame from the relay failed")
            return -1

    def _text(self, text: str | int) -> str:
        return self._buffer.read(text) if isinstance(text, int) else text

    def _record(self, entries: str | int) -> int:
        try:
            return self._recorder.record(self._text(entries))
        except Exception as error:
            report(error, "calls that JavaScript handled could not be recorded")
            return 0

    def _run(self, number: int, given: str | int) -> str | None:
        try:
            return self._recorder.run(number, self._text(given))
        except Exception as error:
            report(error, "a call from the relay failed")
            return None

    def _finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None:
        try:
            self._recorder.finish(upto, channel, id, size, payload, result)
        except Exception as error:
            report(error, "a call from the relay failed")

    def _next_seq(self) -> int:
        try:
            return self._recorder.next_seq()
        except Exception as error:
            report(error, "pending frames could not be written")
            return 0

    def _closed(self, code: int, reason: str) -> None:
        self._is_closed = True
        release_proxies(self._proxies)
        if not self._outcome.done():
            self._outcome.set_exception(_NotOpened())
        elif self._is_handed_over:
            self._on_close(code, reason)

    def _aborted(self) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(_NotOpened())


async def _reason(response: Any) -> tuple[str | None, str | None]:
    """The reason and the message in an error body of the relay, if it has them."""
    try:
        body = json.loads(await response.text())
    except ValueError:
        return None, None
    texts = [body.get(key) if isinstance(body, dict) else None for key in ("error", "message")]
    reason, text = (value if isinstance(value, str) else None for value in texts)
    return reason, text
