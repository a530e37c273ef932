"""The relay as a caller of its own: reads each server's catalogue when it comes up and when it says that it changed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tabrelay.calls import Call, Notice, Peer
from tabrelay.errors import BadAnswer, RelayError
from tabrelay.faces.listening import news_of
from tabrelay.inspection import read_about
from tabrelay.shelf import Catalogue
from tabrelay.switch import Switch
from tabserver.wire import eras, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tabserver.wire.names import server_of
from tabserver.wire.notes import RELAY

log = logging.getLogger(__name__)

MAX_PAGES: Final = 64
MAX_ITEMS: Final = 1024  # of each list; a browser can't fill the relay's disk
# A page that was reloaded offers its tools one after the other: wait this long before the lists count as changed.
SETTLE_S: Final = 0.3
# Tools that are offered one by one are one change.
COALESCE_S: Final = 0.05
RETRY_S: Final = 1.0
MAX_FAILURES: Final = 5
# The catalogue's name of a list -> the capability it needs, the method, and its key in the result
LISTS: Final = {
    "tools": ("tools", "tools/list", "tools"),
    "resources": ("resources", "resources/list", "resources"),
    "templates": ("resources", "resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts", "prompts/list", "prompts"),
}


@dataclass(frozen=True, slots=True)
class Desk:
    """Where the relay sits at one browser: its own channel, and what the server said of itself."""

    peer: Peer
    channel: str
    about: dict[str, Any]


@dataclass(slots=True)
class News:
    """What clients know of one server's lists, and what happened since."""

    told: Catalogue | None
    # A browser came, and nobody has looked yet.
    is_new: bool = False
    # What the server says has changed, and how many lists clients had read before it first said so.
    announced: set[str] = field(default_factory=set)
    listings: int = 0
    failures: int = 0


class Librarian:
    """Keeps the last known catalogue of every server. One channel and at most one reading task per server.

    A server that says that a list changed is read, and compared with what clients know: they are told once, by the
    relay, and only of lists that are others.
    """

    def __init__(self, switch: Switch, version: str, on_change: Callable[[str, frozenset[str]], None]) -> None:
        """`on_change`: these lists are not those that clients know."""
        self._switch = switch
        self._on_change = on_change
        self._news: dict[str, News] = {}
        self._caller = Caller(
            era=Era.LEGACY,
            version=eras.NEWEST_LEGACY,
            principal=RELAY,
            client={"name": "tabrelay", "version": version},
        )
        self._is_closed = False
        self._ids = itertools.count(1)
        self._readings: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._desks: dict[str, Desk] = {}

    def came_up(self, server: str) -> None:
        # It may be another page at the same peer: what the last one said of itself no longer holds.
        desk = self._desks.pop(server, None)
        if desk is not None:
            desk.peer.end(desk.channel, "the catalogue is read anew")
        entry = self._switch.registry.find(server)
        news = self._news.setdefault(server, News(self._switch.registry.recall(server)))
        news.is_new, news.failures = True, 0
        entry.settled.clear()
        self._read(server)

    def follow(self, server: str) -> None:
        """Several browsers share this name, and another is in front, or it offers something else: its lists are the
        name's."""
        registry = self._switch.registry
        catalogue = registry.find(registry.place(server)).catalogue
        if catalogue is None:
            return  # it is new, and being read
        news = self._news.setdefault(server, News(registry.recall(server)))
        changes, news.told = catalogue.changes(news.told), catalogue
        registry.keep_catalogue(server, catalogue)
        self._tell(server, changes)

    def close(self) -> None:
        """The relay stops: a catalogue that is half read is not worth a browser's time."""
        self._is_closed = True
        for task in self._readings.values():
            task.cancel()

    def _heard(self, server: str, notice: Notice) -> None:
        changed = news_of(notice)
        if changed is None:
            return
        news = self._news[server]
        if not news.announced:
            news.listings = self._switch.registry.find(server).listings
        news.announced.add(changed)
        self._read(server)

    def _read(self, server: str) -> None:
        if self._is_closed:
            return
        if server in self._readings:
            self._again.add(server)
            return
        task = asyncio.create_task(self._reading(server))
        self._readings[server] = task
        task.add_done_callback(lambda _task: self._finished(server))

    def _finished(self, server: str) -> None:
        del self._readings[server]
        if not self._news[server].is_new:
            self._switch.registry.find(server).settled.set()
        if server in self._again:
            self._again.discard(server)
            self._read(server)

    async def _reading(self, server: str) -> None:
        news = self._news[server]
        was_new, news.is_new = news.is_new, False
        try:
            if not was_new:
                await asyncio.sleep(COALESCE_S)
            self._again.discard(server)
            catalogue = await self._catalogue(server)
            if was_new and catalogue is not None and news.told is not None and catalogue.changes(news.told):
                await asyncio.sleep(SETTLE_S)
                catalogue = await self._catalogue(server) or catalogue
        except RelayError as error:
            log.info("%s: could not read its catalogue: %s", server, error.message)
            self._tell(server, frozenset(news.announced))
            news.failures += 1
            # It is busy, or not ready yet; one that went is read when it is back.
            if self._switch.is_up(server) and news.failures < MAX_FAILURES:
                asyncio.get_running_loop().call_later(RETRY_S * news.failures, self._read, server)
            return
        news.failures = 0
        # Had another browser come meanwhile, this would be half of the one and half of the other.
        if catalogue is not None and not news.is_new:
            changes = catalogue.changes(news.told) | self._unsure(server, catalogue)
            news.told = catalogue
            self._tell(server, changes)

    def _unsure(self, server: str, catalogue: Catalogue) -> frozenset[str]:
        """Lists that may have been others for a moment, while a client read them; or longer than what is kept here."""
        news = self._news[server]
        if self._switch.registry.find(server).listings > news.listings:
            return frozenset(news.announced)
        return frozenset(name for name in news.announced if len(getattr(catalogue, name)) >= MAX_ITEMS)

    def _tell(self, server: str, changes: frozenset[str]) -> None:
        self._news[server].announced.clear()
        if changes:
            self._on_change(server, changes)

    async def _catalogue(self, server: str) -> Catalogue | None:
        """Read everything, and keep it; None when nobody is there."""
        desk = await self._desk(server)
        if desk is None:
            return None
        can = desk.about.get("capabilities", {})
        lists: dict[str, Any] = {
            name: await self._list(server, desk.channel, method, key) if needs in can else []
            for name, (needs, method, key) in LISTS.items()
        }
        catalogue = Catalogue.from_dict({"initialize": desk.about, **lists}) or Catalogue()
        registry = self._switch.registry
        registry.keep_catalogue(server, catalogue)
        whole = server_of(server)
        if whole != server and registry.place(whole) == server:
            self.follow(whole)
        return catalogue

    async def _desk(self, server: str) -> Desk | None:
        """Our channel to the browser that holds the name now; opened once, then reused for every reading."""
        peer = self._switch.registry.holder(server)
        if peer is None:
            return None
        desk = self._desks.get(server)
        if desk is None or desk.peer is not peer:
            channel = self._switch.new_channel()
            said = await self._ask(server, channel, "initialize", _INITIALIZE | {"clientInfo": self._caller.client})
            about = read_about(said)
            self._switch.notify(server, channel, self._caller, _INITIALIZED)
            peer.listen(channel, self._caller, lambda notice: self._heard(server, notice))
            desk = self._desks[server] = Desk(peer, channel, about)
        return desk

    async def _list(self, server: str, channel: str, method: str, key: str) -> list[Any]:
        items: list[Any] = []
        cursor: str | None = None
        for _page in range(MAX_PAGES):
            result = await self._ask(server, channel, method, {"cursor": cursor} if cursor else {})
            page = result.get(key)
            items += page if isinstance(page, list) else []
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or len(items) >= MAX_ITEMS:
                break
        return items[:MAX_ITEMS]

    async def _ask(self, server: str, channel: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        payload = orjson.dumps(jsonrpc.request(id, method, params)).decode()
        reply = await self._switch.ask(server, Call(channel, id, method, payload, self._caller))
        if reply.error_code not in (None, jsonrpc.METHOD_NOT_FOUND):
            raise BadAnswer(f"{method} was answered with an error")
        # What it has no method for, it has none of.
        result = orjson.loads(reply.payload).get("result")
        return result if isinstance(result, dict) else {}


_INITIALIZE: Final[dict[str, Any]] = {"protocolVersion": eras.NEWEST_LEGACY, "capabilities": {}}
_INITIALIZED: Final = orjson.dumps(jsonrpc.notification("notifications/initialized")).decode()
