"""Capture of calls: which calls are captured, the ring that keeps them, and the rows that changed for the live feed.

Off until a console is open or `inspect` is set: then a call costs one attribute check. While it is on, at most `rows_s`
calls a second are captured; the feed states how many were left out. Reading is decided by the routes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from tabrelay.calls.trace_context import RECEIVED, Headers, Trace, context_in
from tabrelay.config.settings import Settings
from tabrelay.observe.capture.breakpoints import Breakpoints
from tabrelay.observe.capture.captured_call import CLIENT, CapturedCall
from tabrelay.observe.capture.feed import CaptureFeed, Event, FeedReader
from tabrelay.observe.capture.ring import CaptureRing
from tabrelay.observe.capture.rounds import round_before
from tabrelay.observe.capture.rows import Row, row_of

MAX_STREAMS: Final = 16  # open consoles
PER_BATCH: Final = 100  # rows that are made in one callback of the event loop


class TooManyStreams(Exception):
    """So many consoles are open already."""


class CallCapture:
    """One per relay. `is_on` is read for each call; nothing else of it is used while it is off. Implements CallTap."""

    def __init__(self, settings: Settings, relay: str, now: Callable[[], float] = time.monotonic) -> None:
        """`relay`: what rows name as theirs: the address, or the node's id where several relays share a bus."""
        self.is_on = self.is_always_on = settings.inspect
        self.relay = relay
        self.limits = {
            "bytes": settings.console_bytes,
            "rows": settings.console_rows,
            "entry": settings.console_entry,
            "rows_s": settings.console_rows_s,
        }
        self._now = now
        self._most_entry, self._rows_s = settings.console_entry, settings.console_rows_s
        self._linger_s = settings.console_linger_s
        self.ring = CaptureRing(settings.console_bytes, settings.console_rows)
        self.feed = CaptureFeed(self._collect)
        self.breakpoints = Breakpoints(settings.call_deadline_s, self._breakpoints_changed)
        self._are_breakpoints_changed = False
        self._changed: dict[str, CapturedCall] = {}
        self._status_changed = False
        self._left_out, self._left_out_since = 0, 0.0
        # The first part of the ids of calls: not the same for two relays, nor after a restart.
        self._run = secrets.token_hex(4)
        # The title of a tab, by the address of its browser and its id.
        self._title_of: Callable[[str, str], str | None] = lambda place, tab: None
        # Called when a console was opened or closed at this relay.
        self.on_consoles: list[Callable[[], None]] = []
        self._seq = 0
        self._room, self._filled = float(self._rows_s), now()
        self._end_timer: asyncio.TimerHandle | None = None

    def join(self, node: str) -> None:
        """The relay is on a bus: rows and the ids of calls name it as this node, since others may have its address."""
        self.relay = self._run = node

    def use_titles(self, title_of: Callable[[str, str], str | None]) -> None:
        """`title_of`: the title of a tab, by the address of its browser and its id."""
        self._title_of = title_of

    # -- consoles -----------------------------------------------------------------------------------------------------

    @property
    def consoles(self) -> int:
        """Open streams of consoles at this relay."""
        return self.feed.consoles

    def open(self, may_see: Callable[[str], bool], *, is_of_node: bool = False) -> FeedReader:
        """A console opens, here or at another relay: capture is on from now on. Raises TooManyStreams."""
        # defence: consoles that are open
        if not is_of_node and self.consoles >= MAX_STREAMS:
            raise TooManyStreams
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        self.is_on = True
        reader = self.feed.open(may_see, is_of_node=is_of_node)
        if not is_of_node:
            self._consoles_changed()
        return reader

    def _consoles_changed(self) -> None:
        for notify in self.on_consoles:
            notify()

    def close(self, reader: FeedReader) -> None:
        """A console closed. Capture ends a while after the last one: a page may only have been reloaded."""
        self.feed.close(reader)
        if not reader.is_of_node:
            self._consoles_changed()
        if not len(self.feed):
            self.breakpoints.clear()
        if not len(self.feed) and not self.is_always_on and self._end_timer is None:
            self._end_timer = asyncio.get_running_loop().call_later(self._linger_s, self._end)

    def _end(self) -> None:
        self._end_timer = None
        self.is_on = False
        self._changed.clear()
        self.ring.clear()

    def stop(self) -> None:
        """The relay stops."""
        self.breakpoints.clear()
        self.feed.end()
        if self._end_timer is not None:
            self._end_timer.cancel()

    # -- calls --------------------------------------------------------------------------------------------------------

    def begin(
        self, scope: Any, headers: Headers, server: str, message: dict[str, Any], inner: Trace | None
    ) -> Trace | None:
        return self.capture(headers, server, message, inner, received=scope.get(RECEIVED)) or inner

    def capture(
        self,
        headers: Headers,
        server: str,
        message: dict[str, Any],
        inner: Trace | None = None,
        by: str = CLIENT,
        received: float | None = None,
        earlier: CapturedCall | None = None,
    ) -> CapturedCall | None:
        """None if it is left out, because there were too many within the last second. `received`: its first byte, by
        the monotonic clock, if its body took a while. `earlier`: the round before this one, if it is known."""
        if by == CLIENT and not self._has_room():
            self._left_out_since = self._left_out_since or time.time()
            self._left_out += 1
            self.feed.changed()
            return None
        self._seq += 1
        context = context_in(message)
        call = CapturedCall(
            self._seq,
            f"{self._run}-{self._seq:x}",
            server,
            message["method"],
            headers,
            breakpoints=self.breakpoints,
            most=self._most_entry,
            changed=self._call_changed,
            inner=inner,
            by=by,
            trace_id=None if context is None else context.trace_id,
            received=received,
            earlier=earlier or round_before(self.ring, server, message),
            title_of=self._title_of,
        )
        self.ring.add(call)
        return call

    def _has_room(self) -> bool:
        now = self._now()
        # defence: calls that are captured in a second
        self._room = min(float(self._rows_s), self._room + (now - self._filled) * self._rows_s)
        self._filled = now
        if self._room < 1.0:
            return False
        self._room -= 1.0
        return True

    def _call_changed(self, call: CapturedCall, size: int) -> None:
        self.ring.grown(size)
        if len(self.feed) and call.is_kept:
            self._changed[call.id] = call
            self.feed.changed()

    # -- the live feed ------------------------------------------------------------------------------------------------

    def status_changed(self) -> None:
        """Servers, tabs, pairings or nodes are not what they were."""
        self._status_changed = True
        self.feed.changed()

    def _breakpoints_changed(self) -> None:
        self._are_breakpoints_changed = True
        self.feed.changed()

    def _collect(self) -> list[Event]:
        """The events since the last batch."""
        changed, self._changed = self._changed, {}
        found: list[Event] = []
        # defence: loop time of a batch of rows
        if len(changed) > PER_BATCH:
            self._changed = dict(islice(changed.items(), PER_BATCH, None))
            changed = dict(islice(changed.items(), PER_BATCH))
            self.feed.changed()
        if changed:
            found.append({"type": "calls", "rows": [self.row(call) for call in changed.values() if call.is_kept]})
        if self._left_out:
            since, left_out = self._left_out_since, self._left_out
            self._left_out, self._left_out_since = 0, 0.0
            found.append({"type": "sampled", "dropped": left_out, "since": round(since * 1000), "why": "load"})
        if self._status_changed:
            self._status_changed = False
            found.append({"type": "status"})
        if self._are_breakpoints_changed:
            self._are_breakpoints_changed = False
            found.append({"type": "breakpoints"})
        return found

    def row(self, call: CapturedCall) -> Row:
        return row_of(call, self.relay)
