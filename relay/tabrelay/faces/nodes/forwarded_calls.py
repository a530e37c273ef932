"""Inbound calls from other relays over the bus, for browsers that are connected to this one.

This relay only passes them through. Deadlines, retries, the call log and the caller itself belong to the relay that
sent the call; when that relay is lost, its calls are cancelled and its sessions ended at the browser.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tabrelay.bus import errors
from tabrelay.bus.bus import BusDown
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import LISTS, Call, Notice, Pending, Reply
from tabrelay.calls.peer import Peer
from tabrelay.errors import BrowserGone, RelayError, UnknownServer, with_unknown_delivery
from tabrelay.payloads.sliced import SlicedPayload
from tabrelay.routing.drain import Drain
from tabrelay.routing.instances import counts_as_use
from tabrelay.routing.registry import Registry
from tabserver.wire import methods
from tabserver.wire.errors import MessageTooLarge, RemoteProtocolError
from tabserver.wire.frames import Caller, is_channel
from tabserver.wire.jsonrpc import RequestId, is_request_id

log = logging.getLogger(__name__)

Key = tuple[str, str, RequestId]

# The method of a notification is within this many characters of its text.
METHOD_WITHIN: Final = 80


class Forwarded(Pending):
    """A call of another relay. Every message of the browser about it is sent there; nothing is kept here."""

    __slots__ = ("_address", "_cluster", "_on_forwarded_end", "node")

    def __init__(self, call: Call, node: str, address: str, cluster: Membership, on_end: Callable[[], None]) -> None:
        super().__init__(call)
        self.node = node
        self._address = address
        self._cluster = cluster
        self._on_forwarded_end = on_end

    def notify(self, notice: Notice) -> None:
        if not self.is_done:
            send = self._send if is_droppable(notice) else self._assure
            send({"op": "note", "ends": notice.ends_stream}, notice.payload)

    def pin(self, tab: str | None) -> None:
        if not self.is_done:
            self._assure({"op": "pin", "tab": tab})

    def end(self, outcome: Reply | RelayError | None) -> None:
        """None: without an answer, as no caller waits for it, or another relay answers it."""
        if isinstance(outcome, Reply):
            outcome.release()
        if self.is_done:
            return
        self.is_done = True
        if isinstance(outcome, Reply):
            raw = outcome.raw
            brief = raw.summary if isinstance(raw, SlicedPayload) else ""
            payload = raw if isinstance(raw, str) else b"".join(raw)
            self._send({"op": "done", "code": outcome.error_code, "brief": brief}, payload)
        elif outcome is not None:
            self._send({"op": "fail", "error": errors.to_dict(outcome)})
        self._on_forwarded_end()

    def _send(self, header: dict[str, Any], payload: str | bytes | None = None) -> None:
        with suppress(BusDown):  # the other relay asks again when the bus is back
            self._cluster.send(self.node, header | self._key_fields(), payload)

    def _assure(self, header: dict[str, Any], payload: str | None = None) -> None:
        """Send reliably: the browser sends a question or a notification only once, even if the call is asked again."""
        self._cluster.send_reliably(self.node, header | self._key_fields(), payload)

    def _key_fields(self) -> dict[str, Any]:
        return {"a": self._address, "c": self.call.channel, "i": self.call.id}


class Forwarding:
    """Handles messages of other relays for our browsers."""

    def __init__(
        self,
        cluster: Membership,
        registry: Registry,
        drain: Drain,
        local: Callable[[str], Peer | None],
        is_resumable: Callable[[Peer], bool],
    ) -> None:
        """`local`: the browser at an address, if it is connected here. `is_resumable`: can it be asked a call again?"""
        self._cluster = cluster
        self._registry = registry
        self._drain = drain
        self._local = local
        self._is_resumable = is_resumable
        self._calls: dict[Key, Forwarded] = {}
        self._channels: dict[str, dict[tuple[str, str], None]] = {}
        for op, handler in (
            ("call", self._call),
            ("cancel", self._cancel),
            ("say", self._notify),
            ("end", self._end),
            ("listen", self._listen),
        ):
            cluster.handle(op, handler)
        cluster.on_lost.append(self._node_lost)

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        address, call = str(header.get("a")), _read_call(header, payload)
        if call is None:
            log.warning("A relay sent an invalid call.")
            return
        key = (address, call.channel, call.id)
        if key in self._calls and not self._calls[key].is_done:
            return  # already running: the other relay sent it again after a silence
        refused = {"op": "refused", "a": address, "c": call.channel, "i": call.id}
        peer = self._local(address)
        if peer is None or not peer.is_up or self._drain.is_on:
            self._send(node, refused | {"why": "moved" if peer is None else "away"})
            return
        pending = Forwarded(call, node, address, self._cluster, lambda: self._ended(key))
        again = header.get("again")
        pending.asked_of = again if isinstance(again, str) else None
        if pending.asked_of is not None and not self._is_resumable(peer):
            self._send(node, refused | {"op": "fail", "error": errors.to_dict(_unknown(address))})
            return
        self._calls[key] = pending
        if (
            call.method != methods.SUBSCRIPTIONS_LISTEN
        ):  # a listen stream ends with the browser, and must not delay a drain
            self._drain.exchanges.__enter__()
        try:
            peer.start(pending)
        except RelayError as error:
            pending.end(error if pending.asked_of is None else with_unknown_delivery(error))
            return
        self._count(node, address, call)

    def _count(self, node: str, address: str, call: Call) -> None:
        if call.caller.session is not None:
            self._channels.setdefault(node, {})[address, call.channel] = None
        with suppress(UnknownServer):
            entry = self._registry.find(address)
            if call.method == methods.TOOLS_CALL:
                entry.calls += 1
            elif call.method in LISTS:
                entry.listings += 1
        if counts_as_use(call):
            self._registry.shared_names.record_remote_use(address)

    def _ended(self, key: Key) -> None:
        ended = self._calls.pop(key, None)
        if ended is not None and ended.call.method != methods.SUBSCRIPTIONS_LISTEN:
            self._drain.exchanges.__exit__()

    def _cancel(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        address, id = str(header.get("a")), header.get("i")
        pending = self._calls.get((address, str(header.get("c")), id)) if is_request_id(id) else None
        if pending is not None:
            self._stop(address, pending, str(header.get("why")))

    def _stop(self, address: str, pending: Forwarded, why: str) -> None:
        peer = self._local(address)
        if peer is not None:
            peer.cancel(pending, why)
        pending.end(None)

    def moved(self, pending: Pending) -> bool:
        """Its browser moved to another relay. True if the sending relay has to follow it."""
        if isinstance(pending, Forwarded):
            pending.end(None)
            return True
        return False

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _notify(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        found = self._session(node, header)
        if found is not None and payload is not None:
            peer, channel, caller = found
            peer.notify(channel, caller, payload)

    def _listen(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        found = self._session(node, header)
        if found is None:
            return
        peer, channel, caller = found
        fields = {"op": "heard", "a": header["a"], "c": channel}  # style: ok, a message type of the bus

        def receive(notice: Notice) -> None:
            send = self._send if is_droppable(notice) else self._cluster.send_reliably
            send(node, fields, notice.payload)

        peer.listen(channel, caller, receive)

    def _session(self, node: str, header: dict[str, Any]) -> tuple[Peer, str, Caller] | None:
        address, channel, caller = str(header.get("a")), header.get("c"), _caller(header)
        peer = self._local(address)
        # defence: strings of a frame header: a channel from the bus
        if peer is None or caller is None or not is_channel(channel):
            return None
        if header.get("late") is not True:  # else the sender need not be the relay that holds the session
            self._channels.setdefault(node, {})[address, channel] = None
        return peer, channel, caller

    def _end(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        address, channel = str(header.get("a")), str(header.get("c"))
        self._channels.get(node, {}).pop((address, channel), None)
        peer = self._local(address)
        if peer is not None and is_channel(channel):
            peer.end(channel, str(header.get("why")))

    # -- relays --------------------------------------------------------------------------------------------------------

    def _node_lost(self, node: str) -> None:
        """A relay is lost, and its callers with it."""
        for (address, _, _), pending in list(self._calls.items()):
            if pending.node == node:
                self._stop(address, pending, "the relay that it came from is gone")
        for address, channel in self._channels.pop(node, {}):
            peer = self._local(address)
            if peer is not None:
                peer.end(channel, "the relay that it came from is gone")

    def _send(self, node: str, header: dict[str, Any], payload: str | None = None) -> None:
        with suppress(BusDown):
            self._cluster.send(node, header, payload)


def is_droppable(notice: Notice) -> bool:
    """Progress and log messages may be lost: there may be very many, and the next one replaces the last."""
    head = notice.payload[:METHOD_WITHIN]
    return '"notifications/progress"' in head or '"notifications/message"' in head


def _read_call(header: dict[str, Any], payload: str | None) -> Call | None:
    channel, id, method = header.get("c"), header.get("i"), header.get("m")
    caller = _caller(header)
    if payload is None or caller is None or not is_channel(channel):
        return None
    return Call(channel, id, method, payload, caller) if isinstance(method, str) and is_request_id(id) else None


def _caller(header: dict[str, Any]) -> Caller | None:
    """None if it is invalid, or larger than a frame of the link may carry."""
    try:
        caller = Caller.from_dict(header.get("o"))
        _ = caller.text
    except (RemoteProtocolError, MessageTooLarge):
        return None
    return caller


def _unknown(address: str) -> BrowserGone:
    return BrowserGone(f'The page that offers "{address}" can\'t be asked again for the outcome of the call.')
