"""Replies of other relays to forwarded calls: notifications, responses, failures and refusals.

A refused call has not run, unless it was sent before. It is sent again to the relay that has the browser now, for as
long as a new call would wait. Calls that may have run are never sent to another browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.bus import errors
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import RelayError, with_unknown_delivery
from tabrelay.payloads.sliced import Payload, SlicedPayload
from tabrelay.peers.nodes.remote_browsers import RemoteBrowsers
from tabrelay.peers.nodes.remote_peer import RemotePeer
from tabrelay.routing.registry import Registry
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire.control_messages import is_pin
from tabserver.wire.pending_calls import PendingCalls

# A call that a relay refused, because its browser had just left, is sent again after this.
PAUSE_S: Final = 0.05
LARGE: Final = 64 * 1024  # bytes of a response that is decoded when it arrives


class ReplyInbox:
    """One per relay that is on a bus."""

    def __init__(
        self,
        cluster: Membership,
        registry: Registry,
        calls_by_address: dict[str, PendingCalls[Pending]],
        remote: RemoteBrowsers,
        *,
        wait_s: float,
        locate: Callable[[str], Awaitable[None]],
        drop: Callable[[RemotePeer], None],
    ) -> None:
        """`wait_s`: how long a refused call is retried. `locate` finds the relay of a name. `drop`: a browser is not
        where it was."""
        self._registry = registry
        self._calls_by_address = calls_by_address
        self._remote = remote
        self._wait_s = wait_s
        self._locate = locate
        self._drop = drop
        self._retry_until: dict[Pending, float] = {}
        self._tasks = BackgroundTasks()
        for op, handler in (
            ("fail", self._failed),
            ("note", self._noted),
            ("pin", self._pinned),
            ("refused", self._refused),
            ("heard", self._received_message),  # style: ok, an operation of the bus protocol
        ):
            cluster.handle(op, handler)
        cluster.handle_raw("done", self._done)

    def _pop(self, header: dict[str, Any]) -> Pending | None:
        address, channel, id = str(header.get("a")), str(header.get("c")), header.get("i")
        calls, peer = self._calls_by_address.get(address), self._remote.peer_with_calls(address)
        if peer is not None:
            peer.end_delivery((channel, id))  # type: ignore[arg-type]
        return calls.pop((channel, id), None) if calls is not None and id is not None else None

    def _get(self, header: dict[str, Any]) -> Pending | None:
        calls, id = self._calls_by_address.get(str(header.get("a"))), header.get("i")
        return calls.get((str(header.get("c")), id)) if calls is not None and id is not None else None

    def _done(self, node: str, header: dict[str, Any], payload: memoryview | None) -> None:
        pending, code = self._pop(header), header.get("code")
        if pending is not None and payload is not None:
            pending.end(Reply(_decode(payload, header.get("brief")), code if isinstance(code, int) else None))

    def _failed(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending = self._pop(header)
        if pending is not None:
            self._fail(pending, errors.from_dict(header.get("error")))

    def _fail(self, pending: Pending, error: RelayError) -> None:
        """A caller retries when the error states that nothing was delivered. A call that was sent before may have
        run."""
        pending.end(error if pending.asked_of is None else with_unknown_delivery(error))

    def _noted(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending = self._get(header)
        if pending is not None and payload is not None:
            pending.notify(Notice(payload, ends_stream=header.get("ends") is True))

    def _pinned(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        pending, tab = self._get(header), header.get("tab")
        if pending is not None and is_pin(tab):
            pending.pin(tab)

    def _received_message(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        peer = self._remote.get(str(header.get("a")))
        if peer is not None and payload is not None:
            peer.receive(str(header.get("c")), payload)

    # -- calls that were refused --------------------------------------------------------------------------------------

    def _refused(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        """The relay no longer has the browser, or the browser is away for a moment: the call was not passed on."""
        address = str(header.get("a"))
        peer, pending = self._remote.peer_with_calls(address), self._get(header)
        if pending is None or peer is None or peer.location.node != node:
            return  # the call was sent to another relay meanwhile
        if header.get("why") == "away" and peer.is_connected and self._remote.get(address) is peer:
            peer.is_connected = False
            self._registry.mark_away(address, peer)
        self.call_refused(peer, pending, is_gone=header.get("why") != "away")

    def call_refused(self, peer: RemotePeer, pending: Pending, *, is_gone: bool = True) -> None:
        address, call = peer.location.address, pending.call
        peer.end_delivery((call.channel, call.id))
        calls = self._calls_by_address.get(address)
        was_awaited = calls is not None and calls.pop((call.channel, call.id), None) is not None
        if is_gone:
            self._drop(peer)
        if was_awaited:
            self._tasks.start(self._retry(address, pending))

    async def _retry(self, address: str, pending: Pending) -> None:
        loop = asyncio.get_running_loop()
        due = self._retry_until.setdefault(pending, loop.time() + self._wait_s)
        try:
            await asyncio.sleep(PAUSE_S)
            await self._locate(address)
            _, peer = await self._registry.wait_for_peer(address, max(due - loop.time(), 0.0))
            if not pending.is_done:
                peer.start(pending)
        except RelayError as error:
            self._fail(pending, error)
        finally:
            self._retry_until = {one: at for one, at in self._retry_until.items() if not one.is_done}


def _decode(payload: memoryview, brief: object) -> Payload:
    """A response as text; a long one stays as bytes. `brief`: see `SlicedPayload`."""
    # defence: loop time: long answers from the bus are not decoded
    if len(payload) <= LARGE:
        return str(payload, "utf-8")
    sliced = SlicedPayload((bytes(payload),), None)
    sliced.summary = brief if isinstance(brief, str) else ""
    return sliced
