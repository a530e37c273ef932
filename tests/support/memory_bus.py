"""In-memory message bus within one process: for tests, and as the reference for the behaviour of the NATS bus.

Delivers in order, in the next iteration of the event loop. Not for production: relays are separate processes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

from tabrelay.bus.bus import BusDown, BusMessage, OnReply

MAX_PAYLOAD: Final = 1024 * 1024


class MemoryBroker:
    """Shared by all `MemoryBus` instances. `cut` and `restore` correspond to the loss and return of a NATS server, to
    which nodes reconnect one after the other."""

    def __init__(self) -> None:
        self._listeners: dict[str, dict[int, tuple[MemoryBus, Callable[[BusMessage], None]]]] = {}
        self._ids = itertools.count(1)
        self.nodes: list[MemoryBus] = []
        self.undelivered = 0  # requests without a subscriber
        self._is_cut = False
        self._back: set[MemoryBus] = set()  # nodes that are connected again after `cut`

    def join(self, node: MemoryBus) -> None:
        self.nodes.append(node)

    def leave(self, node: MemoryBus) -> None:
        if node in self.nodes:
            self.nodes.remove(node)
        self._back.discard(node)
        for listeners in self._listeners.values():
            for id in [id for id, (owner, _) in listeners.items() if owner is node]:
                del listeners[id]

    def subscribe(self, node: MemoryBus, subject: str, on_message: Callable[[BusMessage], None]) -> Callable[[], None]:
        id = next(self._ids)
        listeners = self._listeners.setdefault(subject, {})
        listeners[id] = (node, on_message)

        def close() -> None:
            listeners.pop(id, None)
            if not listeners:
                self._listeners.pop(subject, None)

        return close

    def is_connected(self, node: MemoryBus) -> bool:
        return not self._is_cut or node in self._back

    def deliver(self, message: BusMessage, on_unreachable: Callable[[], None] | None) -> None:
        listeners = self._listeners.get(message.subject, {})
        receivers = [id for id, (node, _) in listeners.items() if self.is_connected(node)]
        loop = asyncio.get_running_loop()
        for id in receivers:
            loop.call_soon(self._deliver_to, id, message)
        if not receivers and on_unreachable is not None:
            self.undelivered += 1
            loop.call_soon(on_unreachable)

    def _deliver_to(self, id: int, message: BusMessage) -> None:
        """Drops the message if the subscription has ended, or while the bus is cut."""
        node, on_message = self._listeners.get(message.subject, {}).get(id, (None, None))
        if node is not None and on_message is not None and self.is_connected(node):
            on_message(message)

    def cut(self) -> None:
        self._is_cut = True
        self._back.clear()
        for node in list(self.nodes):
            node.notify_state(False)

    def restore(self, *first: MemoryBus) -> None:
        """Reconnect all nodes, or only these."""
        back = [node for node in first or self.nodes if not self.is_connected(node)]
        self._back.update(first)
        self._is_cut = self._is_cut and bool(first)
        for node in back:
            node.notify_state(True)


class MemoryBus:
    """One node's connection to a `MemoryBroker`."""

    max_payload = MAX_PAYLOAD

    def __init__(self, broker: MemoryBroker) -> None:
        self.on_state: list[Callable[[bool], None]] = []
        self._broker = broker
        self._is_started = False
        self._replies = itertools.count(1)

    @property
    def is_up(self) -> bool:
        return self._is_started and self._broker.is_connected(self)

    async def start(self) -> None:
        self._is_started = True
        self._broker.join(self)
        self.notify_state(self.is_up)

    def notify_state(self, is_up: bool) -> None:
        for notify in self.on_state:
            notify(is_up)

    async def stop(self) -> None:
        self._is_started = False
        self._broker.leave(self)

    def subscribe(self, subject: str, on_message: Callable[[BusMessage], None]) -> Callable[[], None]:
        return self._broker.subscribe(self, subject, on_message)

    def send(self, subject: str, data: bytes, on_reply: OnReply | None = None) -> Callable[[], None]:
        if not self.is_up or len(data) > self.max_payload:
            raise BusDown("The bus is not connected.")
        if on_reply is None:
            self._broker.deliver(BusMessage(subject, data), None)
            return lambda: None
        receive, reply = on_reply, f"_reply.{id(self)}.{next(self._replies)}"
        close = self._broker.subscribe(self, reply, lambda message: receive(message.data))
        self._broker.deliver(BusMessage(subject, data, reply), lambda: receive(None))
        return close

    def answer(self, reply: str, data: bytes) -> None:
        if self.is_up:
            self._broker.deliver(BusMessage(reply, data), None)
