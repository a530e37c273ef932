"""What other relays say of the calls that we sent them: notices and answers, and calls that come back untaken.

A call that was not taken did not run, if it was not asked before. It goes wherever its browser is now, for as long as a
new call would wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.bus import errors
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import RelayError, doubtful
from tabrelay.payloads.sliced import Payload, SlicedPayload
from tabrelay.peers.nodes.remote_browsers import RemoteBrowsers
from tabrelay.peers.nodes.remote_peer import RemotePeer
from tabrelay.routing.registry import Registry
from tabserver.wire.control_messages import is_pin
from tabserver.wire.pending_calls import PendingCalls

# A call that a relay did not take, because its browser had just left, is tried anew after this.
PAUSE_S: Final = 0.05
LARGE: Final = 64 * 1024  # bytes of an answer that is decoded when it comes


class ReplyInbox:
    """One per relay that is on a bus."""

    def __init__(
        self,
        cluster: Membership,
        registry: Registry,
        rosters: dict[str, PendingCalls[Pending]],
        abroad: RemoteBrowsers,
        *,
        wait_s: float,
        find: Callable[[str], Awaitable[None]],
        drop: Callable[[RemotePeer], None],
    ) -> None:
        """`wait_s`: how long a call is tried anew. `find`: learn who has a name; `drop`: a browser is not where it
        was."""
        self._registry = registry
        self._rosters = rosters
        self._abroad = abroad
        self._wait_s = wait_s
        self._find = find
        self._drop = drop
        self._waiting: dict[Pending, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for op, handler in (
            ("fail", self._failed),
            ("note", self._noted),
            ("pin", self._pinned),
            ("refused", self._refused),
            ("heard", self._heard),
        ):
            cluster.handle(op, handler)
        cluster.handle_raw("done", self._done)

    def _take(self, header: dict[str, Any]) -> Pending | None:
        address, channel, id = str(header.get("a")), str(header.get("c")), header.get("i")
        roster, peer = self._rosters.get(address), self._abroad.asked(address)
        if peer is not None:
            peer.settle((channel, id))  # type: ignore[arg-type]
        return roster.pop((channel, id), None) if roster is not None and id is not None else None

    def _get(self, header: dict[str, Any]) -> Pending | None:
        roster, id = self._rosters.get(str(header.get("a"))), header.get("i")
        return roster.get((str(header.get("c")), id)) if roster is not None and id is not None else None

    def _done(self, node: str, header: dict[str, Any], payload: memoryview | None) -> None:
        pending, code = self._take(header), header.get("code")
        if pending is not None and payload is not None:
            pending.finish(Reply(_said(payload, header.get("brief")), code if isinstance(code, int) else None))

    def _failed(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending = self._take(header)
        if pending is not None:
            self._fail(pending, errors.from_dict(header.get("error")))

    def _fail(self, pending: Pending, error: RelayError) -> None:
        """A caller that is told that nothing was delivered tries again, and what was asked before may have run."""
        pending.fail(error if pending.asked_of is None else doubtful(error))

    def _noted(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending = self._get(header)
        if pending is not None and payload is not None:
            pending.notify(Notice(payload, ends_stream=header.get("ends") is True))

    def _pinned(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending, tab = self._get(header), header.get("tab")
        if pending is not None and pending.on_pin is not None and is_pin(tab):
            pending.on_pin(tab)

    def _heard(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        peer = self._abroad.get(str(header.get("a")))
        if peer is not None and payload is not None:
            peer.heard(str(header.get("c")), payload)

    # -- calls that were not taken ------------------------------------------------------------------------------------

    def _refused(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        """The relay has the browser no longer, or it is away for a moment: nothing was sent this time."""
        address = str(header.get("a"))
        peer, pending = self._abroad.asked(address), self._get(header)
        if pending is None or peer is None or peer.place.node != node:
            return  # it went on to another one meanwhile
        if header.get("why") == "away" and peer.is_there and self._abroad.get(address) is peer:
            peer.is_there = False
            self._registry.away(address, peer)
        self.not_taken(peer, pending, is_gone=header.get("why") != "away")

    def not_taken(self, peer: RemotePeer, pending: Pending, *, is_gone: bool = True) -> None:
        address, call = peer.place.address, pending.call
        peer.settle((call.channel, call.id))
        roster = self._rosters.get(address)
        was_awaited = roster is not None and roster.pop((call.channel, call.id), None) is not None
        if is_gone:
            self._drop(peer)
        if was_awaited:
            task = asyncio.create_task(self._place_again(address, pending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _place_again(self, address: str, pending: Pending) -> None:
        loop = asyncio.get_running_loop()
        due = self._waiting.setdefault(pending, loop.time() + self._wait_s)
        try:
            await asyncio.sleep(PAUSE_S)
            await self._find(address)
            _, peer = await self._registry.reach(address, max(due - loop.time(), 0.0))
            if not pending.is_done:
                peer.start(pending)
        except RelayError as error:
            self._fail(pending, error)
        finally:
            self._waiting = {one: at for one, at in self._waiting.items() if not one.is_done}


def _said(payload: memoryview, brief: object) -> Payload:
    """An answer as text; a long one stays as it came. `brief`: see `SlicedPayload`."""
    # defence: loop time: long answers from the bus are not decoded
    if len(payload) <= LARGE:
        return str(payload, "utf-8")
    said = SlicedPayload((bytes(payload),), None)
    said.summary = brief if isinstance(brief, str) else ""
    return said
