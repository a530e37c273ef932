"""Live rows of all relays in one console: a node with an open console asks the others to send their captured rows.

The request is repeated while a console is open there, and ends with it or with its node. The rows of a node go through
the same bounded reader as those of a console. What is captured and redacted is decided in `observe.capture`; details
are asked for by `console_proxy`.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import orjson

from tabrelay.bus.bus import BusDown
from tabrelay.bus.members import Membership
from tabrelay.observe.capture.call_capture import PER_BATCH, CallCapture
from tabrelay.observe.capture.feed import FeedReader, encode
from tabrelay.system.tasks import BackgroundTasks

REPEAT_S: Final = 2.0
LEASE_S: Final = 7.0  # three repetitions, and some time
MAX_KNOWN: Final = 500  # rows that a console gets when it opens, of each other node
PASSED_ON: Final = frozenset({"calls", "sampled", "breakpoints", "status"})


class _Watching:
    """A node whose consoles get our rows."""

    def __init__(self, reader: FeedReader) -> None:
        self.reader = reader
        self.until = 0.0


class SharedConsole:
    """One per relay on a bus."""

    def __init__(self, cluster: Membership, capture: CallCapture) -> None:
        self._cluster, self._capture = cluster, capture
        self._watching: dict[str, _Watching] = {}
        self._tasks = BackgroundTasks()
        self._asking: asyncio.Task[None] | None = None
        cluster.handle("console", self._asked)
        cluster.handle("console-rows", self._receive)
        cluster.on_lost.append(self._end)
        cluster.on_up.append(self._ask_again)
        capture.on_consoles.append(self._consoles_changed)

    async def close(self) -> None:
        for node in list(self._watching):
            self._end(node)
        if self._asking is not None:
            self._asking.cancel()
        await self._tasks.cancel()

    # -- a console is open here ---------------------------------------------------------------------------------------

    def _consoles_changed(self) -> None:
        """A console was opened or closed."""
        if not self._capture.consoles:
            if self._asking is not None:
                self._asking.cancel()
                self._asking = None
            self._ask(is_over=True)
            return
        self._ask(is_new=True)
        self._asking = self._asking or asyncio.create_task(self._repeat())

    def _ask_again(self) -> None:
        """The bus is connected again."""
        if self._capture.consoles:
            self._ask(is_new=True)

    def _ask(self, **more: bool) -> None:
        self._cluster.broadcast({"op": "console", **more})

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPEAT_S)
            self._ask()

    def _receive(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        """An event of another node's feed."""
        event = orjson.loads(payload or "null")
        if isinstance(event, dict) and event.get("type") in PASSED_ON:
            self._capture.feed.send(event, is_of_node=True)

    # -- a console is open at another node ----------------------------------------------------------------------------

    def _asked(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        if header.get("is_over") is True:
            self._end(node)
            return
        watching = self._watching.get(node)
        is_new = watching is None or header.get("is_new") is True
        if watching is None:
            watching = self._watching[node] = _Watching(self._capture.open(lambda server: True, is_of_node=True))
            self._tasks.start(self._send_rows(node, watching))
        watching.until = time.monotonic() + LEASE_S
        if is_new:
            self._tasks.start(self._send_known(watching.reader))

    def _end(self, node: str) -> None:
        watching = self._watching.pop(node, None)
        if watching is not None:
            watching.reader.end()
            self._capture.close(watching.reader)

    async def _send_known(self, reader: FeedReader) -> None:
        known = list(islice(self._capture.ring.newest(), MAX_KNOWN))[::-1]
        for at in range(0, len(known), PER_BATCH):
            rows = [self._capture.row(call) for call in known[at : at + PER_BATCH] if call.is_kept]
            reader.put(encode({"type": "calls", "rows": rows}), len(rows))
            await asyncio.sleep(0)

    async def _send_rows(self, node: str, watching: _Watching) -> None:
        """Until no console is open there any more."""
        while not watching.reader.is_over:
            event = await watching.reader.next(LEASE_S)
            # defence: a node that no longer asks for rows
            if time.monotonic() > watching.until:
                self._end(node)
            elif event is not None:
                with suppress(BusDown):  # its next request gets all rows again
                    self._cluster.send(node, {"op": "console-rows"}, event)
