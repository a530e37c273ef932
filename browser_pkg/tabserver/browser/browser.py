"""The browser, for everybody else: the only file that imports `js` and `pyodide`.

Sockets, ports, abort signals, Web Locks and files, each behind the Protocol that its user wrote; and the lifetimes of
the proxies that JavaScript holds on to. It carries out and reports; what to do about it is decided by its callers, and
all of those run on CPython too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import js
from pyodide.ffi import JsException, create_proxy, to_js

from ..timing import steady_ms
from ..transport.dialing import Abort, DialError
from ..wire.frames import BEARER_PREFIX, SUBPROTOCOL, split
from .shared_buffer import SharedBuffer

_MAX_REASON: Final = 123  # bytes, RFC 6455 section 5.5: a control frame has 125, the code takes two
_SMALL_BUFFER: Final = 64 * 1024
_DRAINING: Final = 503  # how a relay that is about to restart answers


class PythonBridge(Protocol):
    """js/worker/python_bridge.js."""

    def useSharedBuffer(self, memory: Any) -> None: ...
    def listen(self, port: Any, receive: Any, receivePlain: Any) -> None: ...
    def poster(self, port: Any, asText: bool) -> Callable[[str], None]: ...
    def prove(self, relay: str, token: str, signal: Any) -> Any: ...
    def openSocket(
        self, url: str, protocols: Any, signature: str, opened: Any, received: Any, closed: Any, *recorder: Any
    ) -> Any: ...
    def allow(self, port: Any, number: int, channel: str, words: str, meta: str, hasRivals: bool) -> None: ...
    def revoke(self) -> None: ...
    def unbooked(self) -> str: ...
    def sender(self, socket: Any) -> Callable[[str], int]: ...
    def whenFree(self, name: str, tell: Any) -> Callable[[], None]: ...
    def whenOnline(self, tell: Any) -> None: ...


# Seconds of a clock that never runs backwards. Python asks the browser for it without a proxy, as JavaScript can't be.
now_s: Final = time.monotonic


def steady_clock() -> Callable[[], float]:
    """See `steady_ms`. `express.js` reads the same clock."""
    # defence: stalls: the time of day is set, and the worker's waits go on
    return steady_ms(js.performance.timeOrigin + js.performance.now(), now_s)


def report(error: BaseException, while_doing: str) -> None:
    """The end of the road for an exception that nobody expected: the worker's console."""
    import traceback

    js.console.error(f"tabrelay: {while_doing}\n" + "".join(traceback.format_exception(error)))


def guarded(function: Callable[..., None], while_doing: str) -> Callable[..., None]:
    """An exception in a listener would vanish in the browser; let the console have it, and let the worker live."""

    def call(*args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            report(error, while_doing)

    return call


def make_shared_buffer(bridge: PythonBridge) -> SharedBuffer:
    buffer = SharedBuffer()
    bridge.useSharedBuffer(create_proxy(buffer.memory))
    return buffer


def allow(bridge: PythonBridge, number: int, channel: str, meta: str) -> None:
    """Let calls to a tool of the worker's own be run like that on this channel: see express.py."""
    bridge.allow(None, number, channel, "", meta, False)


class CallRecorder(Protocol):
    """What counts the calls that the shim carries out: see express.py."""

    @property
    def last_received(self) -> int: ...
    def record(self, entries: str) -> int: ...
    def run(self, number: int, given: str) -> str | None: ...
    def finish(self, upto: int, channel: str, id: str, size: int, payload: str, result: str) -> None: ...
    def next_seq(self) -> int: ...


class Port:
    """One page's MessagePort. `gone` is called once, when the tab whose lock was given to `watch` has died."""

    reads_requests = False

    def __init__(self, bridge: PythonBridge, buffer: SharedBuffer, port: Any) -> None:
        self._bridge = bridge
        self._buffer = buffer
        self._port = port
        # Kept, because looking it up costs more than calling it.
        self.post = bridge.poster(port, False)
        self._watched: str | None = None
        self._stop_watch: Callable[[], None] = lambda: None
        self._proxies: list[Any] = []

    def listen(
        self, receive: Callable[[dict[str, Any]], None], receive_result: Callable[[str, str, bool], None]
    ) -> None:
        """`receive_result`: gets the call, its result as JSON text, and whether that may be passed on unread."""

        def take(text: str) -> None:
            message = json.loads(text)
            if message["t"] == "result":
                receive_result(str(message["call"]), str(message["json"]), False)
            else:
                receive(message)

        def take_plain(text: str | int) -> None:
            call, _, result = (self._buffer.read(text) if isinstance(text, int) else text).partition("\n")
            receive_result(call, result, True)

        proxies = [create_proxy(guarded(each, "a message from a page failed")) for each in (take, take_plain)]
        self._proxies += proxies
        self._bridge.listen(self._port, *proxies)

    def allow(self, number: int, channel: str, words: str, meta: str, has_rivals: bool) -> None:
        self._bridge.allow(self._port, number, channel, words, meta, has_rivals)

    def use_text(self) -> None:
        """The page reads JSON text, which costs both sides less than an object does."""
        self.post = self._bridge.poster(self._port, True)

    def send(self, message: Mapping[str, Any]) -> None:
        self.post(json.dumps(message))

    def watch(self, lock: str, gone: Callable[[], None]) -> None:
        """Learn of the tab's death: the browser gives us the lock that the tab held."""
        if lock == self._watched:
            return
        self._stop_watch()
        self._watched = lock

        def tell() -> None:
            self._close()
            gone()

        proxy = create_proxy(guarded(tell, "a tab's end could not be handled"))
        self._proxies.append(proxy)
        self._stop_watch = self._bridge.whenFree(lock, proxy)

    def _close(self) -> None:
        self._port.onmessage = None
        self._port.close()
        _release(self._proxies)


class Aborter:
    """An AbortController."""

    def __init__(self) -> None:
        self._controller = js.AbortController.new()
        self.reason: str | None = None

    def abort(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            # What is awaited fails with this value, and Pyodide awaits for ever what fails with a string.
            # defence: dials that are given up
            self._controller.abort(js.Error.new(reason))

    @property
    def aborted(self) -> bool:
        return bool(self._controller.signal.aborted)

    @property
    def signal(self) -> Any:
        return self._controller.signal


class WebSocket:
    """An open WebSocket."""

    def __init__(self, bridge: PythonBridge, socket: Any) -> None:
        self._socket = socket
        self._send = bridge.sender(socket)
        self._buffered = 0

    def send(self, header: str, payload: str | None) -> None:
        self._buffered = self._send(header if payload is None else f"{header}\n{payload}")

    def close(self, code: int, reason: str) -> None:
        # A script may say 1000 or 3000-4999 and nothing else; the rest is the browser's own vocabulary.
        allowed = code if code == 1000 or 3000 <= code <= 4999 else 1000
        self._socket.close(allowed, reason.encode(errors="replace")[:_MAX_REASON].decode(errors="ignore"))

    @property
    def buffered(self) -> int:
        # Between our own writes it only becomes less: while it was little, nobody has to be asked.
        if self._buffered > _SMALL_BUFFER:
            self._buffered = int(self._socket.bufferedAmount)
        return self._buffered


class Dialer:
    """Opens sockets to one server of one relay, and finds out why one does not open."""

    def __init__(self, bridge: PythonBridge, buffer: SharedBuffer, relay: str, server: str) -> None:
        self._bridge = bridge
        self._buffer = buffer
        self._relay = relay.rstrip("/")
        self._server = server
        self.token = ""
        self.recorder: CallRecorder | None = None

    async def dial(
        self, abort: Abort, on_message: Callable[[str, str | None], None], on_close: Callable[[int, str], None]
    ) -> WebSocket:
        assert isinstance(abort, Aborter), "an attempt in a browser is given up by an AbortController"
        if not self.token:
            raise DialError("not_paired", "This page is not paired with the relay. Run: tabrelay pair", True)
        # Chromium delays sockets after failures, by seconds in the end, but never a fetch: ask first, then dial.
        bearer, signature = await self._prove(abort)
        assert self.recorder is not None
        dialling = _SocketAttempt(self._bridge, self._buffer, self.recorder, on_message, on_close)
        try:
            return await dialling.open(self._url(), _protocols(bearer), signature, abort)
        except JsException as error:
            raise DialError("forbidden", f"The browser refuses to dial {self._url()}: {error}", True) from error
        except _NotOpened:
            raise await self._why_refused(abort) from None

    def _url(self) -> str:
        return f"ws{self._relay.removeprefix('http')}/{self._server}"

    async def _prove(self, abort: Aborter) -> tuple[str, str]:
        """P2 to P4: what to show the relay, and what its WebSocket begins with. Nothing is shown before.

        What a program says that did not prove to be the relay ends no attempts: the relay may come back."""
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
        # A relay that drains still takes back a browser that has a call's result for it: let the dial find out.
        if not response.ok and response.status != _DRAINING:
            raise DialError("relay_down", f"{self._relay} answers {response.status}: is that the relay?", False)

    async def _why_refused(self, abort: Aborter) -> DialError:
        """A browser says of a refused handshake only that it failed. The same question over HTTP has an answer."""
        try:
            # The relay may have gone, and another program have taken its port.
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
            why = "taken" if reason in ("taken", "reserved") else "forbidden"
            return DialError(why, text or f'This page may not serve "{self._server}".', reason != "reserved")
        if response.status == _DRAINING:
            return DialError("restarting", "The relay is restarting.", False)
        return DialError("lost", "The relay is there, but its WebSocket could not be opened.", False)

    async def _why_unreadable(self, abort: Aborter) -> DialError:
        """The browser keeps the answer from us. If there is a relay, it has not let this page's origin read it."""
        try:
            await self._check_health(abort)
        except DialError as error:
            return error
        origin = js.location.origin
        text = (
            f"The relay does not let pages of {origin} in: this one is not paired (any more). Retry to ask for it, or"
        )
        return DialError("forbidden", f"{text} start the relay with: --allow-origin {origin}", True)

    def _unreachable(self, abort: Aborter) -> DialError:
        if abort.aborted:
            return DialError("timeout", f"The relay at {self._relay} did not answer in time.", False)
        return DialError("relay_down", f"No relay answers at {self._relay}. Start it with: tabrelay serve", False)


def _protocols(bearer: str) -> list[str]:
    # A browser can't set headers on a WebSocket; the subprotocols are the one field that a script may fill.
    return [SUBPROTOCOL, BEARER_PREFIX + base64.urlsafe_b64encode(bearer.encode()).decode().rstrip("=")]


class _NotOpened(Exception):
    """The socket was given up, or closed before it opened; the browser does not say why."""


class _SocketAttempt:
    """One attempt: a socket on its way, and the listeners it has until it closes."""

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
        carried = [self._listener(each) for each in (self._record, self._run, self._finish, self._next_seq)]
        try:
            socket = self._bridge.openSocket(url, to_js(protocols), signature, *listeners, *carried)
        except JsException:
            _release(self._proxies)
            raise
        given_up = create_proxy(lambda _event: self._aborted())
        abort.signal.addEventListener("abort", given_up)
        try:
            await self._outcome
            # The event loop may come back here late: look again before the socket counts as open.
            if abort.aborted or self._is_closed:
                raise _NotOpened
        except BaseException:
            # Aborted or cancelled: a socket that is closed before it opened never opens late.
            socket.close()
            raise
        finally:
            abort.signal.removeEventListener("abort", given_up)
            given_up.destroy()
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
        """Returns the number of the last frame that came."""
        # The relay says nothing before it is greeted, so nothing can be lost before the hand-over.
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
            report(error, "calls that were carried out could not be counted")
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
            report(error, "what waits could not be written")
            return 0

    def _closed(self, code: int, reason: str) -> None:
        self._is_closed = True
        _release(self._proxies)
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
    said = [body.get(key) if isinstance(body, dict) else None for key in ("error", "message")]
    reason, text = (value if isinstance(value, str) else None for value in said)
    return reason, text


def _release(proxies: list[Any]) -> None:
    """Give proxies back, but not while one of them is being called."""
    gone, proxies[:] = proxies[:], []
    asyncio.get_running_loop().call_soon(lambda: [proxy.destroy() for proxy in gone])


async def fetch_text(url: str, timeout_s: float) -> str:
    """The text behind a URL; raises OSError with what went wrong."""
    try:
        response = await js.fetch(url, cache="no-cache", signal=js.AbortSignal.timeout(timeout_s * 1000))
        if not response.ok:
            raise OSError(f"the server answers {response.status}")
        return str(await response.text())
    except JsException as error:
        raise OSError(str(error)) from error


def when_online(bridge: PythonBridge, callback: Callable[[], None]) -> None:
    bridge.whenOnline(create_proxy(guarded(callback, "coming online failed")))


def to_javascript(value: Any) -> Any:
    """JSON-like data as a JavaScript value."""
    return js.JSON.parse(json.dumps(value))


def to_python(value: Any) -> Any:
    """A JavaScript value as plain Python data, in which null is None."""
    return json.loads(js.JSON.stringify(value))


def persistent_proxy(function: Callable[..., Any]) -> Any:
    """A function that JavaScript may keep and call for as long as the page lives."""
    return create_proxy(function)


def release(*functions: Any) -> None:
    """JavaScript has let go of functions that were given to it by `lasting`."""
    _release(list(functions))


def as_object(members: Mapping[str, Any]) -> Any:
    """A JavaScript object whose members are taken as they are."""
    return js.Object.fromEntries(to_js(list(members.items())))


class Rejected(Exception):
    """A JavaScript promise that was not kept."""

    def __init__(self, name: str, message: str, code: Any, data: Any) -> None:
        super().__init__(message)
        self.name, self.message, self.code, self.data = name, message, code, data


async def result_of(promise: Any) -> Any:
    """What a promise comes to, as plain Python data; raises Rejected."""
    try:
        return to_python(await promise)
    except JsException as error:
        data = getattr(error, "data", None)
        more = getattr(error, "code", None), None if data is None else to_python(data)
        raise Rejected(error.name, error.message, *more) from None


class Promised:
    """A JavaScript promise that Python keeps."""

    def __init__(self) -> None:
        self._resolvers = js.Promise.withResolvers()
        self.is_settled = False

    @property
    def promise(self) -> Any:
        return self._resolvers.promise

    def resolve(self, value: Any) -> None:
        """`value` as `to_javascript` gives it."""
        self.is_settled = True
        self._resolvers.resolve(value)

    def reject(self, name: str, message: str, code: int, data: Any) -> None:
        """With an error that client.js knows for one of the protocol."""
        self.is_settled = True
        error = js.Error.new(message)
        error.name, error.code, error.isProtocolError = name, code, True
        if data is not None:
            error.data = to_javascript(data)
        self._resolvers.reject(error)


def when_aborted(signal: Any, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` when a signal is aborted; returns what ends the watch."""
    proxy = create_proxy(lambda _event: callback())
    signal.addEventListener("abort", proxy)

    def stop() -> None:
        signal.removeEventListener("abort", proxy)
        _release([proxy])

    return stop
