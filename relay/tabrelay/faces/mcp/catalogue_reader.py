"""Reader of server catalogues: lists the tools, resources and prompts of each server when they may have changed.

The relay reads over its own channel to the browser, one reading task per server, when a browser connects and when a
server announces a change. The digests of the lists are compared with those that clients know, and clients are notified
once, by the relay, of lists that differ. Catalogues themselves are stored by the registry.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Call, Notice
from tabrelay.calls.peer import Peer
from tabrelay.errors import BadAnswer, RelayError
from tabrelay.faces.mcp.subscriptions import changed_list
from tabrelay.payloads.list_checks import DESCRIPTION_MEMBERS, read_server_description
from tabrelay.routing.catalogue_store import Catalogue
from tabrelay.routing.switch import Switch
from tabrelay.system.loop_turns import run_in_turns
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.control_messages import ABOUT, RELAY
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tabserver.wire.names import server_of

log = logging.getLogger(__name__)

MAX_PAGES: Final = 64
MAX_ITEMS: Final = 1024  # of each list, so that a browser can't fill the relay's disk
# A reloaded page registers its tools one after the other: wait this long before the lists count as changed.
SETTLE_S: Final = 0.3
# Tools that are registered one by one count as one change.
COALESCE_S: Final = 0.05
RETRY_S: Final = 1.0
MAX_FAILURES: Final = 5
# Name of a list in the catalogue -> required capability, method, key in the result
LISTS: Final = {
    "tools": ("tools", methods.TOOLS_LIST, "tools"),
    "resources": ("resources", methods.RESOURCES_LIST, "resources"),
    "templates": ("resources", methods.RESOURCES_TEMPLATES_LIST, "resourceTemplates"),
    "prompts": ("prompts", methods.PROMPTS_LIST, "prompts"),
}


@dataclass(frozen=True, slots=True)
class ReadState:
    """The relay's channel to one browser, and the used members of the server's InitializeResult."""

    peer: Peer
    channel: str
    about: dict[str, Any]


Digests = dict[str, bytes]  # by list name; catalogues themselves are stored only by the registry, within its budget
_EMPTY: Final = Catalogue().digests()


def _changes(now: Digests, before: Digests | None) -> frozenset[str]:
    return frozenset(name for name, digest in now.items() if digest != (before or _EMPTY)[name])


@dataclass(slots=True)
class ListDigests:
    """Digests of one server's lists as clients know them, and what happened since."""

    known: Digests | None  # None: as for a server without any list
    # A browser connected, and its lists have not been read yet.
    is_new: bool = False
    # Lists that the server announced as changed, and how many lists clients had read before the first announcement.
    announced: set[str] = field(default_factory=set)
    listings: int = 0
    failures: int = 0
    # Lists that were read only in part.
    cut: set[str] = field(default_factory=set)


class CatalogueReader:
    """Reads catalogues and reports changed lists. One channel and at most one reading task per server."""

    def __init__(
        self, switch: Switch, version: str, max_list: int, on_change: Callable[[str, frozenset[str]], None]
    ) -> None:
        """`max_list`: bytes of one list that are kept. `on_change` is called with lists that differ from what clients
        know."""
        self._switch = switch
        self._max_list = max_list
        self._on_change = on_change
        self._digests: dict[str, ListDigests] = {}
        self._caller = Caller(
            era=Era.LEGACY,
            version=eras.NEWEST_LEGACY,
            principal=RELAY,
            client={"name": "tabrelay", "version": version},
        )
        self._is_closed = False
        self._ids = itertools.count(1)
        self._readings: dict[str, asyncio.Task[None]] = {}
        self._reread: set[str] = set()
        self._read_states: dict[str, ReadState] = {}

    def came_up(self, server: str) -> None:
        # It may be another page at the same peer, so the InitializeResult of the last one is no longer valid.
        self._forget_state(server)
        entry = self._switch.registry.find(server)
        digests = self._digests_of(server)
        digests.is_new, digests.failures = True, 0
        entry.is_listed.clear()
        self._read(server)

    def _forget_state(self, server: str) -> None:
        state = self._read_states.pop(server, None)
        if state is not None:
            state.peer.end(state.channel, "the catalogue is read again")

    def follow(self, server: str) -> None:
        """Several browsers share this name: take the lists of the one in front, which is another one or has changed."""
        registry = self._switch.registry
        catalogue = registry.find(registry.shared_names.destination(server)).catalogue
        if catalogue is None:
            return  # it is new and still being read
        digests, now = self._digests_of(server), catalogue.digests()
        changes, digests.known = _changes(now, digests.known), now
        registry.catalogues.keep(server, catalogue)
        self._report_changes(server, changes)

    def _digests_of(self, server: str) -> ListDigests:
        digests = self._digests.get(server)
        if digests is None:
            if len(self._digests) >= len(self._switch.registry):
                # defence: catalogues: what is known of names that are forgotten
                self._drop_unknown_names()
            recalled = self._switch.registry.cached_catalogue(server)
            digests = self._digests[server] = ListDigests(None if recalled is None else recalled.digests())
        return digests

    def _drop_unknown_names(self) -> None:
        """Drop names that the registry has dropped."""
        knows = self._switch.registry.knows
        for name in [name for name in self._digests if not knows(name) and name not in self._readings]:
            del self._digests[name]
            self._reread.discard(name)
            self.peer_left(name)

    def peer_left(self, server: str) -> None:
        """The browser is permanently gone. Keeping the channel would keep the peer in memory."""
        state = self._read_states.get(server)
        if state is not None and not state.peer.is_up:
            del self._read_states[server]

    def close(self) -> None:
        """The relay stops: cancel all readings."""
        self._is_closed = True
        for task in self._readings.values():
            task.cancel()

    def _describe_again(self, server: str) -> None:
        """The server says something else of itself: initialize again."""
        if server in self._digests:
            self._forget_state(server)
            self._read(server)

    def _receive_notice(self, server: str, notice: Notice) -> None:
        if ABOUT in notice.payload and orjson.loads(notice.payload).get("method") == ABOUT:
            self._describe_again(server)
        changed = changed_list(notice)
        if changed is None:
            return
        digests = self._digests.get(server)
        if digests is None or not self._switch.registry.knows(server):
            return
        if not digests.announced:
            digests.listings = self._switch.registry.find(server).listings
        digests.announced.add(changed)
        self._read(server)

    def _read(self, server: str) -> None:
        if self._is_closed:
            return
        if server in self._readings:
            self._reread.add(server)
            return
        task = asyncio.create_task(self._reading(server))
        self._readings[server] = task
        task.add_done_callback(lambda _task: self._finished(server))

    def _finished(self, server: str) -> None:
        del self._readings[server]
        if not self._digests[server].is_new and self._switch.registry.knows(server):
            self._switch.registry.find(server).is_listed.set()
        if server in self._reread:
            self._reread.discard(server)
            self._read(server)

    async def _reading(self, server: str) -> None:
        digests = self._digests[server]
        was_new, digests.is_new = digests.is_new, False
        try:
            if not was_new:
                await asyncio.sleep(COALESCE_S)
            self._reread.discard(server)
            now = await self._read_catalogue(server)
            if was_new and now is not None and digests.known is not None and _changes(now, digests.known):
                await asyncio.sleep(SETTLE_S)
                now = await self._read_catalogue(server) or now
        except RelayError as error:
            log.info("%s: could not read its catalogue: %s", server, error.message)
            self._report_changes(server, frozenset(digests.announced))
            digests.failures += 1
            # It is busy or not ready yet. A browser that left is read when it returns.
            if self._switch.is_up(server) and digests.failures < MAX_FAILURES:
                asyncio.get_running_loop().call_later(RETRY_S * digests.failures, self._read, server)
            return
        digests.failures = 0
        # If another browser connected in the meantime, the lists would be a mix of both.
        if now is not None and not digests.is_new:
            changes = _changes(now, digests.known) | self._uncertain(server)
            digests.known = now
            self._report_changes(server, changes)

    def _uncertain(self, server: str) -> frozenset[str]:
        """Announced lists whose digests are not conclusive: a client may have read an intermediate state, or the list
        was read only in part."""
        digests = self._digests[server]
        if self._switch.registry.find(server).listings > digests.listings:
            return frozenset(digests.announced)
        return frozenset(digests.announced & digests.cut)

    def _report_changes(self, server: str, changes: frozenset[str]) -> None:
        self._digests[server].announced.clear()
        if changes:
            self._on_change(server, changes)

    async def _read_catalogue(self, server: str) -> Digests | None:
        """Read all lists and store them in the registry; None if no browser is connected."""
        state = await self._open_state(server)
        if state is None:
            return None
        can = state.about.get("capabilities", {})
        # A browser may leave between two lists, and its grace is a minute. Until then the lists wait as text: values
        # take up to 20 times as much memory, and no budget counts them yet.
        texts: dict[str, list[bytes]] = {}
        for name, (needs, method, key) in LISTS.items():
            texts[name], is_cut = (
                await self._read_list(server, state.channel, method, key) if needs in can else ([], False)
            )
            (self._digests[server].cut.add if is_cut else self._digests[server].cut.discard)(name)
        lists: dict[str, list[Any]] = {}
        for name in LISTS:
            lists[name] = [orjson.loads(text) for text in texts.pop(name)]
            await asyncio.sleep(0)
        # defence: loop time of a catalogue
        reading = Catalogue.reading({"initialize": state.about, **lists})
        catalogue = await run_in_turns(reading) or Catalogue()
        registry = self._switch.registry
        if not registry.knows(server):
            return None  # the browser left meanwhile, and others took the room of its name
        registry.catalogues.keep(server, catalogue)
        whole = server_of(server)
        if whole != server and registry.shared_names.destination(whole) == server:
            self.follow(whole)
        return catalogue.digests()

    async def _open_state(self, server: str) -> ReadState | None:
        """The relay's channel to the browser that holds the name now; opened once, then reused for every reading."""
        peer = self._switch.registry.holder(server)
        if peer is None:
            return None
        state = self._read_states.get(server)
        if state is None or state.peer is not peer:
            channel = self._switch.new_channel()
            result = await self._request(
                server, channel, methods.INITIALIZE, _INITIALIZE | {"clientInfo": self._caller.client}
            )
            read = read_server_description(result)
            about: dict[str, Any] = {key: read[key] for key in DESCRIPTION_MEMBERS if key in read}
            self._switch.notify(server, channel, self._caller, _INITIALIZED)
            peer.listen(channel, self._caller, lambda notice: self._receive_notice(server, notice))
            state = self._read_states[server] = ReadState(peer, channel, about)
        return state

    async def _read_list(self, server: str, channel: str, method: str, key: str) -> tuple[list[bytes], bool]:
        """The items on all pages of a list within the limits, as JSON, and whether the server has more."""
        items: list[bytes] = []
        size = 0
        cursor: str | None = None
        for _page in range(MAX_PAGES):
            result = await self._request(server, channel, method, {"cursor": cursor} if cursor else {})
            page = result.get(key)
            for item in page if isinstance(page, list) else ():
                text = orjson.dumps(item)
                size += len(text)
                # defence: catalogues: pages of a list without end
                if len(items) >= MAX_ITEMS or size > self._max_list:
                    return items, True
                # defence: memory of lists that wait for others
                items.append(text)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return items, False
        return items, True

    async def _request(self, server: str, channel: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
        reply = await self._switch.ask(server, Call(channel, id, method, payload, self._caller))
        if reply.error_code not in (None, jsonrpc.METHOD_NOT_FOUND):
            raise BadAnswer(f"{method} was answered with an error")
        # A server without the method has no such items.
        result = orjson.loads(reply.payload).get("result")
        return result if isinstance(result, dict) else {}


_INITIALIZE: Final[dict[str, Any]] = {"protocolVersion": eras.NEWEST_LEGACY, "capabilities": {}}
_INITIALIZED: Final = orjson.dumps(jsonrpc.notification(methods.INITIALIZED)).decode()
