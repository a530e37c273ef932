"""I/O shell of a browser link at the relay: current socket, event pump, batched writes and one timer.

It passes received texts to the sans-I/O `tabserver.wire.Link`, hands its events to the subclass (`BrowserPeer`), writes
the link's frames to the current socket, and re-arms the timer. The worker has the same shell in `tabserver.transport`;
logic that both need belongs in `tabserver.wire`. The shell does not interpret events or messages.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from tabrelay.calls.calls import Pending
from tabrelay.payloads.json_limits import is_heavy
from tabrelay.payloads.sliced import Payload
from tabserver.wire.errors import BufferFull, MessageTooLarge
from tabserver.wire.events import Event, Violation
from tabserver.wire.frames import CLOSE_REPLACED, CLOSE_SLOW, CLOSE_TRY_LATER, Caller
from tabserver.wire.limits import LARGEST_PART, RETRY_TIMER_S
from tabserver.wire.link import Link
from tabserver.wire.pending_calls import PendingCalls

log = logging.getLogger(__name__)

# Values of a frame's header, which may repeat a long request id. The standard library parses it.
MAX_HEADER_VALUES: Final = 32_000


class LinkSocket(Protocol):
    """One WebSocket, for writing. A write goes to the socket that it was meant for, never to "the current socket"."""

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None:
        """Header and payload of each, in order."""

    def close(self, code: int, reason: str) -> None: ...


class LinkShell(ABC):
    """One link and its current socket. A base class and not a member, so that a frame costs no extra call."""

    def __init__(self, server: str, link: Link[Any], pending_calls: PendingCalls[Pending]) -> None:
        self.server = server
        self.link = link
        self._pending_calls = pending_calls
        self._loop = asyncio.get_running_loop()
        self._socket: LinkSocket | None = None
        self._opened: dict[str, Caller] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._will_write = False
        self._unwritten = 0  # calls that are not on the socket yet
        self._gone = False
        self._has_left = False  # closed on purpose? Else the browser may resume within its grace.

    @abstractmethod
    def _handle(self, event: Event) -> None:
        """Act on an event of the link."""

    @abstractmethod
    def _resolve(self, pending: Pending, payload: Payload) -> None:
        """Finish a call with the browser's response."""

    @abstractmethod
    def _socket_closed(self) -> None:
        """The session has lost its socket."""

    # -- from the socket ----------------------------------------------------------------------------------------------

    def attach(self, socket: LinkSocket, hello: str) -> None:
        """Use a socket that sent a hello for this session. It replaces an older socket of the same session."""
        now = self._loop.time()
        stale, self._socket = self._socket, socket
        self._has_left = False
        if stale is not None:
            self.link.disconnected(now)
            stale.close(CLOSE_REPLACED, "the same worker has dialled again")
        self.link.connected(now)
        self.receive_frame(socket, hello, None)

    def receive_text(self, socket: LinkSocket, text: str) -> None:
        """Handle one text of the socket. A response in one frame, the frequent case, is resolved without an event."""
        if socket is not self._socket:
            return
        header, newline, payload = text.partition("\n")  # as `frames.split` does
        # defence: characters of one frame
        if len(payload) > LARGEST_PART:
            self._handle(Violation(f"a frame of more than {LARGEST_PART:,} characters", too_much=True))
            return
        answered = self.link.answer(header, payload, self._loop.time()) if newline else None
        if answered is None:
            # defence: values of a frame's header
            if is_heavy(header, MAX_HEADER_VALUES):
                self._handle(Violation("a frame's header has too many values", too_much=True))
            else:
                self.receive_frame(socket, header, payload if newline else None)
            return
        # A response to a call that this browser does not have is dropped: it was cancelled, or never made.
        pending = self._pending_calls.pop(answered, None)
        if pending is not None:
            self._resolve(pending, payload)
        if not self._will_write:
            self._write_soon()

    def receive_frame(self, socket: LinkSocket, header: str, payload: str | None) -> None:
        if socket is self._socket:
            self.link.receive(header, payload, self._loop.time())
            if self.link.has_events:
                self._pump()
            else:  # a slice, or an acknowledgement
                self._write_soon()

    def detach(self, socket: LinkSocket) -> None:
        """The socket closed. The session can be resumed on another one until its grace is over."""
        if socket is not self._socket:
            return
        self._socket = None
        self.link.disconnected(self._loop.time())
        self._socket_closed()
        self._pump()

    def left(self, socket: LinkSocket) -> None:
        """The browser closed the socket on purpose: its page was closed, or asked for it."""
        if socket is self._socket:
            self._has_left = True

    def refused(self, socket: LinkSocket) -> None:
        """L16: the browser closed the socket because of a frame of ours. That frame is not sent again."""
        if socket is self._socket:
            self.link.refused()

    def slow(self, socket: LinkSocket) -> None:
        """The browser does not read. Drop the socket; the session can be resumed on another one."""
        if socket is self._socket:
            self._drop(CLOSE_SLOW, "the browser reads too slowly")

    def cut(self, reason: str) -> None:
        """Lose the socket as in a network that fails: without `bye`. The session can be resumed on another one."""
        socket = self._socket
        if socket is not None:
            socket.close(CLOSE_TRY_LATER, reason)
            self.detach(socket)

    def _drop(self, code: int, reason: str) -> None:
        socket = self._socket
        if socket is not None:
            self.link.bye(code, reason, self._loop.time())
            self._write()
            socket.close(code, reason)
            self.detach(socket)

    # -- to the socket ------------------------------------------------------------------------------------------------

    def _open(self, channel: str, caller: Caller) -> None:
        if channel not in self._opened:
            self.link.open(channel, caller, self._loop.time())
            self._opened[channel] = caller

    def _send_best_effort(self, write: Callable[[float], None]) -> None:
        """Send a message without an answer. If the link has no room, it is dropped and logged, with no error."""
        if self._gone or self.link.is_over:
            return
        try:
            write(self._loop.time())
        except (BufferFull, MessageTooLarge) as error:
            log.warning("%s: dropped a message to the browser: %s", self.server, error)
        self._pump()

    def _write_soon(self) -> None:
        """Write at the end of this event-loop iteration, in which many calls may start and many answers arrive. Frames
        to the browser cause no events, so the pump is not needed."""
        if not self._will_write:
            self._will_write = True
            self._loop.call_soon(self._write_now)

    def _write_now(self) -> None:
        self._will_write = False
        self._write()
        self._arm()

    def _write(self) -> None:
        self._unwritten = 0
        frames = self.link.frames()
        if frames and self._socket is not None:
            self._socket.write(frames)

    # -- events and the timer -----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        try:
            for event in self.link.events():
                # defence: stalls: an event that fails at the relay does not end the others
                self._handle_safely(event)
            self._write()
        finally:
            self._arm()

    def _handle_safely(self, event: Event) -> None:
        """An event that can't be handled must not stop the ones after it: these are answers to other calls."""
        try:
            self._handle(event)
        except Exception:
            log.exception("%s: could not handle %s", self.server, type(event).__name__)

    def _arm(self) -> None:
        """Keep one timer, and move it only when it must fire earlier: most frames only postpone the deadline."""
        due = self.link.next_timer()
        if due is None or self._gone:
            return
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            # `_timer_due` and not `TimerHandle.when()`: uvloop's handle does not know it when it is due at once.
            self._timer, self._timer_due = self._loop.call_at(due, self._fire), due

    def _fire(self) -> None:
        self._timer = None
        try:
            self.link.handle_timer(self._loop.time())
        except Exception:
            # Without a timer the link would send no more heartbeats. With a pause, as it may fail again.
            log.exception("%s: a timer of the link failed", self.server)
            due = self._loop.time() + RETRY_TIMER_S
            # defence: stalls: a link whose timer failed gets another one at the relay
            self._timer, self._timer_due = self._loop.call_at(due, self._fire), due
        self._pump()

    def _end_link(self) -> None:
        self._gone = True
        self.link.end()
        if self._timer is not None:
            self._timer.cancel()
