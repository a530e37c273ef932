"""Membership of relays on a bus: heartbeats, failure detection, messages to one node, questions to all nodes.

Every node sends a beat, by default every two seconds. A node that has missed three is lost, whether it was killed,
stopped or cut off, and `on_lost` is called. A node also receives its own beats, on the same path as those of the
others: while they do not arrive, the bus delivers nothing, and no node is declared lost.

Does not interpret the messages: handlers are registered for each operation.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bus import envelope
from tabrelay.bus.bus import Bus, BusDown, BusMessage
from tabrelay.bus.envelope import Assembly, BadEnvelope
from tabrelay.bus.redelivery import DuplicateFilter, KeptMessage, Redelivery
from tabrelay.bus.subjects import ANNOUNCEMENTS, Subjects

log = logging.getLogger(__name__)

BEAT_S: Final = 2.0
MISSED: Final = 3
STOPPED: Final = "it stopped"
ASK_S: Final = 1.0
# At the start, the relay waits this long for the bus; then it starts without.
FIRST_S: Final = 2.0
KEEP_S: Final = 300.0
# Nodes that were lost because they were silent, and may come back. Most never do.
MOST_LOST: Final = 1024

Handler = Callable[[str, dict[str, Any], str | None], None]
RawHandler = Callable[[str, dict[str, Any], memoryview | None], None]
Question = Callable[[dict[str, Any]], dict[str, Any] | None]


@dataclass(slots=True)
class Node:
    """Another relay, as its last beat described it."""

    id: str
    last_beat: float
    about: dict[str, Any]


class Membership:
    """This node, and the other nodes on its bus."""

    def __init__(
        self,
        bus: Bus,
        key: bytes,
        about: Callable[[], dict[str, Any]] = dict,
        beat_s: float = BEAT_S,
        keep_s: float = KEEP_S,
    ) -> None:
        """`key`: a secret of the installation. `about`: fields of a beat that describe this node. `keep_s`: how long
        messages for redelivery are kept while the bus is away."""
        self._beat_s = beat_s
        self.id = secrets.token_hex(6)
        self.since = time.time()
        self.bus = bus
        self.subjects = Subjects(key)
        self.nodes: dict[str, Node] = {}
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[str], None]] = []
        # This node was silent for so long that the others have declared it lost.
        self.on_stall: list[Callable[[], None]] = []
        # A connected node has declared this one lost: it sends `lost` when it receives our beats again.
        self.on_declared_lost: list[Callable[[str], None]] = []
        self._about = about
        self._handlers: dict[str, Handler] = {}
        self._raw_handlers: dict[str, RawHandler] = {}
        self._questions: dict[str, Question] = {}
        self._assembly = Assembly()
        self._redelivery = Redelivery(keep_s)
        self._duplicates = DuplicateFilter()
        self._numbers = itertools.count(1)
        self._foreign_realms: set[str] = set()
        self._lost_nodes: dict[str, None] = {}
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        bus.on_state.append(self._on_state)
        self.handle("lost", self._on_declared_lost)

    @property
    def is_up(self) -> bool:
        return self.bus.is_up

    def handle(self, op: str, handler: Handler) -> None:
        """Register a handler for messages with `op`: handler(node, header, payload)."""
        self._handlers[op] = handler

    def handle_raw(self, op: str, handler: RawHandler) -> None:
        """The same for payloads that may be very long: they are not decoded."""
        self._raw_handlers[op] = handler

    def handle_question(self, name: str, answer: Question) -> None:
        """Register the function that answers the question `name`; it returns None for no answer."""
        self._questions[name] = answer

    async def start(self) -> None:
        bus, subjects = self.bus, self.subjects
        bus.subscribe(subjects.node(self.id), self._on_message)
        bus.subscribe(subjects.beats, self._on_beat)
        bus.subscribe(subjects.all_nodes, self._on_question)
        bus.subscribe(ANNOUNCEMENTS, self._on_announcement)
        await bus.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._first.wait()
        self._task = asyncio.create_task(self._send_beats())

    async def stop(self) -> None:
        """Send a last beat with `bye`, so that no node waits for the next ones."""
        if self._task is not None:
            self._task.cancel()
        with suppress(BusDown):
            self._publish_beat({"op": "beat", "from": self.id, "bye": True})
        await self.bus.stop()

    # -- to other nodes -----------------------------------------------------------------------------------------------

    def send(self, node: str, header: dict[str, Any], payload: str | bytes | None = None) -> None:
        """Send to one node, in order; raises BusDown."""
        for data in self._slices(header, payload):
            self.bus.send(self.subjects.node(node), data)

    def send_or_report(
        self, node: str, header: dict[str, Any], payload: str | None, on_unreachable: Callable[[], None]
    ) -> Callable[[], None]:
        """Like `send`; calls `on_unreachable` if there is no such node. The returned function ends the waiting."""
        *before, last = self._slices(header, payload)
        subject = self.subjects.node(node)
        for data in before:
            self.bus.send(subject, data)
        return self.bus.send(subject, last, lambda reply: on_unreachable() if reply is None else None)

    def broadcast(self, header: dict[str, Any], payload: str | None = None) -> None:
        """To every other node; what can't be sent is lost."""
        with suppress(BusDown):
            for data in self._slices(header, payload):
                self.bus.send(self.subjects.all_nodes, data)

    def send_reliably(self, node: str | None, header: dict[str, Any], payload: str | None = None) -> None:
        """Send to one node, or to all known nodes (None). Messages that are lost with the bus are sent again when it is
        back, within bounds, and handled once."""
        nodes = frozenset(self.nodes if node is None else (node,))
        kept = self._redelivery.keep(nodes, header, payload, asyncio.get_running_loop().time())
        if node is None:
            self.broadcast(kept.header, payload)
        else:
            self._redeliver(node, kept)

    def _redeliver(self, node: str, *missed: KeptMessage) -> None:
        with suppress(BusDown):
            for kept in missed:
                self.send(node, kept.header, kept.payload)

    def _slices(self, header: dict[str, Any], payload: str | bytes | None) -> list[bytes]:
        data = envelope.pack({**header, "from": self.id}, payload)
        return envelope.slices(data, self.bus.max_payload, self.id, next(self._numbers))

    async def ask_all(self, name: str, question: dict[str, Any], timeout_s: float = ASK_S) -> list[dict[str, Any]]:
        """Answers of all other nodes to a question, within a time; slow nodes are left out."""
        others = set(self.nodes)
        answers: dict[str, dict[str, Any]] = {}
        done = asyncio.Event()
        if not others:
            return []

        def receive(data: bytes | None) -> None:
            if data is None:
                return
            with suppress(BadEnvelope):
                header, _ = envelope.unpack(data)
                answers[str(header.get("from"))] = header
                if others <= set(answers):
                    done.set()

        try:
            data = envelope.pack({**question, "op": "ask", "what": name, "from": self.id})
            close = self.bus.send(self.subjects.all_nodes, data, receive)
        except BusDown:
            return []
        try:
            async with asyncio.timeout(timeout_s):
                await done.wait()
        except TimeoutError:
            pass
        finally:
            close()
        return [answer for answer in answers.values() if "nothing" not in answer]

    # -- from other nodes ---------------------------------------------------------------------------------------------

    def _on_message(self, message: BusMessage) -> None:
        self._dispatch(message)

    def _on_question(self, message: BusMessage) -> None:
        header = self._dispatch(message)
        if header is None or header["op"] != "ask" or not message.reply:
            return
        answer = self._questions.get(str(header.get("what")))
        try:
            reply = answer(header) if answer is not None else None
            data = envelope.pack({**({"nothing": True} if reply is None else reply), "op": "answer", "from": self.id})
        except Exception:
            log.exception("A question of another relay (%s) could not be answered.", str(header.get("what"))[:40])
            data = envelope.pack({"nothing": True, "op": "answer", "from": self.id})
        self.bus.answer(message.reply, data)

    def _dispatch(self, message: BusMessage) -> dict[str, Any] | None:
        try:
            data = self._assembly.add(message.data)
            if data is None:
                return None
            header, body = envelope.split(data)
            sender = header.get("from")
            if not isinstance(sender, str):
                raise BadEnvelope("no sender")
            raw = self._raw_handlers.get(header["op"])
            payload = None if body is None or raw is not None else str(body, "utf-8")
        except UnicodeDecodeError:
            log.warning("Ignored an invalid message from the bus: not UTF-8.")
            return None
        except BadEnvelope as error:
            log.warning("Ignored an invalid message from the bus: %s.", error)
            return None
        number = header.get("n")
        if sender == self.id or (isinstance(number, int) and not self._duplicates.is_new(sender, number)):
            return None
        handler = self._handlers.get(header["op"])
        if handler is not None or raw is not None:
            try:
                if raw is not None:
                    raw(sender, header, body)
                elif handler is not None:
                    handler(sender, header, payload)
            # defence: a message of the bus that can't be handled
            except Exception:  # the next message is independent of this one
                log.exception("A message of relay %s (%s) could not be handled.", sender[:40], header["op"][:40])
        return header

    # -- who is there -------------------------------------------------------------------------------------------------

    def _on_state(self, is_up: bool) -> None:
        if not is_up:
            for notify in self.on_down:
                notify()
            return
        self._first.set()
        now = asyncio.get_running_loop().time()
        for node in self.nodes.values():  # no beat could be received meanwhile
            node.last_beat = now
        with suppress(BusDown):
            self.bus.send(ANNOUNCEMENTS, envelope.pack({"op": "here", "from": self.id, "realm": self.subjects.realm}))
        self._send_beat(new=True)
        for notify in self.on_up:
            notify()
        for id in self.nodes:
            self._redeliver(id, *self._redelivery.due(id, now))

    def _on_announcement(self, message: BusMessage) -> None:
        """Warn of relays with another secret on this bus: they share nothing else, which may be a mistake."""
        with suppress(BadEnvelope):
            header, _ = envelope.unpack(message.data)
            realm, sender = header.get("realm"), header.get("from")
            if isinstance(realm, str) and realm != self.subjects.realm and realm not in self._foreign_realms:
                self._foreign_realms = {*list(self._foreign_realms)[:15], realm}
                log.warning(
                    "A relay on this bus (%s) has another session.key in its state directory: it and this one don't "
                    "share their browsers. Give both the same state directory, if they should.",
                    sender,
                )

    async def _send_beats(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._send_beat()
            await asyncio.sleep(self._beat_s)
            silent_s = loop.time() - began
            if silent_s > 2 * self._beat_s:
                # This process was suspended: beats that arrived meanwhile are still unread.
                for node in self.nodes.values():
                    node.last_beat = loop.time()
            if silent_s > MISSED * self._beat_s:
                log.warning("This relay was suspended for %.0f s: the other relays declared it lost.", silent_s)
                for notify in self.on_stall:
                    notify()

    def _send_beat(self, **more: Any) -> None:
        """`at`: our own clock, for `_drop_silent_nodes`."""
        about = {"since": self.since, **self._about(), "at": asyncio.get_running_loop().time()}
        with suppress(BusDown):
            self._publish_beat({"op": "beat", "from": self.id, **more, **about})

    def _drop_silent_nodes(self, at: object) -> None:
        """Our own beat, sent at `at`, has arrived, so all earlier messages of others have arrived too. A node is lost
        if its last beat was too old at that time. Delays of the bus and times without a bus do not count."""
        for node in list(self.nodes.values()):
            if isinstance(at, int | float) and at - node.last_beat > MISSED * self._beat_s:
                self._remove(node.id, "it is silent")

    def _publish_beat(self, header: dict[str, Any]) -> None:
        self.bus.send(self.subjects.beats, envelope.pack(header))

    def _on_beat(self, message: BusMessage) -> None:
        try:
            header, _ = envelope.unpack(message.data)
        except BadEnvelope:
            return
        sender = header.get("from")
        if not isinstance(sender, str):
            return
        if sender == self.id:
            self._drop_silent_nodes(header.get("at"))
            return
        if header.get("bye") is True:
            self._remove(sender, STOPPED)
            return
        known = self.nodes.get(sender)
        now = asyncio.get_running_loop().time()
        if known is None:
            log.info("Relay %s is on the bus.", sender)
            self.nodes[sender] = Node(sender, now, header)
        else:
            known.last_beat, known.about = now, header
        if sender in self._lost_nodes:
            del self._lost_nodes[sender]
            with suppress(BusDown):
                self.send(sender, {"op": "lost"})
        if header.get("new") is True:
            self._send_beat()  # so that it knows us without waiting for our next beat
            self._redeliver(sender, *self._redelivery.due(sender, now))

    def _remove(self, id: str, why: str) -> None:
        if self.nodes.pop(id, None) is None:
            return
        log.log(logging.INFO if why == STOPPED else logging.WARNING, "Relay %s is gone: %s.", id, why)
        self._assembly.discard(id)
        if why != STOPPED:
            self._lost_nodes = dict.fromkeys([*self._lost_nodes, id][-MOST_LOST:])
        for notify in self.on_lost:
            notify(id)

    def _on_declared_lost(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        for notify in self.on_declared_lost:
            notify(node)
