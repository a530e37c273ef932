"""Locator of browsers on the bus: which relay has the browser of a name.

A relay queries the bus when a client needs a name, and then follows the announcements of the relay that has the
browser. There is no list of all browsers: a relay subscribes to one subject for each server that it has browsers of.
The bus reports at once when a subject has no subscriber, and a relay that dies leaves nothing behind. Calls are not
sent here: `RemotePeer` sends them, and `ReplyInbox` receives the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bus import envelope
from tabrelay.bus.bus import BusDown, BusMessage
from tabrelay.bus.envelope import BadEnvelope, number
from tabrelay.bus.errors import no_answer, unreachable
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import Pending
from tabrelay.calls.peer import Peer, PeerKind
from tabrelay.config.settings import Settings
from tabrelay.errors import BrowserGone, RelayError, UnknownServer
from tabrelay.peers.nodes.local_browsers import LocalBrowser, LocalBrowsers
from tabrelay.peers.nodes.remote_browsers import RemoteBrowsers
from tabrelay.peers.nodes.remote_peer import BrowserLocation, RemotePeer
from tabrelay.peers.nodes.replies import ReplyInbox
from tabrelay.routing.catalogue_store import Catalogue
from tabrelay.routing.instances import TabInfo, TabReport
from tabrelay.routing.registry import Registry
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire.names import server_of
from tabserver.wire.pending_calls import PendingCalls

LOCATE_S: Final = 1.0
# Where several browsers share a name, more than one relay may answer.
GATHER_S: Final = 0.05
MAX_FOLLOWED: Final = 4096


@dataclass(slots=True)
class Followed:
    """A server whose announcements we receive. `is_located`: its relay was queried since the bus last came up."""

    close: Callable[[], None]
    is_located: bool = False
    query: asyncio.Task[bool] | None = None


class BrowserLocator:
    """One per relay that is on a bus."""

    def __init__(
        self,
        cluster: Membership,
        registry: Registry,
        calls_by_address: dict[str, PendingCalls[Pending]],
        settings: Settings,
        *,
        on_up: Callable[[str], None],
        on_gone: Callable[[str], None],
        has_moved: Callable[[Pending], bool] = lambda pending: False,
    ) -> None:
        """`has_moved`: is it a call of another relay, which follows the browser itself? Then it is dropped here."""
        self._cluster = cluster
        self._registry = registry
        self._settings = settings
        self._on_up = on_up
        self._on_gone = on_gone
        self._followed: dict[str, Followed] = {}
        self._remote = RemoteBrowsers(calls_by_address)
        self._tasks = BackgroundTasks()
        self._has_moved = has_moved
        self.browsers = LocalBrowsers(cluster, registry, on_first=self._follow, displace=self._displace)
        self._replies = ReplyInbox(
            cluster,
            registry,
            calls_by_address,
            self._remote,
            wait_s=settings.away_wait_s,
            locate=self.find,
            drop=self._drop,
        )
        cluster.on_up.append(self._bus_up)
        cluster.on_lost.append(self._node_lost)
        cluster.on_stall.append(self._stalled)
        cluster.on_declared_lost.append(self._given_up)
        cluster.handle_question("known", self._answer_known)

    # -- finding ------------------------------------------------------------------------------------------------------

    def is_held(self, server: str) -> bool:
        """Is it certain, without a query, which peer gets this server's calls?"""
        peer = self._registry.holder(server)
        if peer is None or (not peer.is_up and not self._is_local(peer)):
            return False
        followed = self._followed.get(server_of(server))
        return (followed is not None and followed.is_located) or server_of(server) not in self._settings.instances

    def _is_local(self, peer: Peer) -> bool:
        return peer.kind is not PeerKind.NODE

    def has(self, server: str) -> bool:
        """Is a browser of this server connected here?"""
        return self.browsers.has(server)

    def local(self, address: str) -> Peer | None:
        """The browser at this address, if it is connected here."""
        held = self.browsers.get(address)
        return held.peer if held is not None else None

    async def find(self, server: str) -> None:
        """Enter the server's holder into the registry. Raises if the bus is down and no browser is here, and if no
        relay answers and the server is unknown: a client that gets "unknown server" would never try it again."""
        if self.is_held(server):
            return
        if not self._cluster.is_up:
            peer = self._registry.holder(server)
            if peer is None or not self._is_local(peer):
                raise unreachable()
            return
        followed = self._follow(server_of(server))
        if followed.query is None:
            followed.query = asyncio.create_task(self._query_owner(server_of(server), followed))
        is_certain = False
        with suppress(BusDown):
            is_certain = await asyncio.shield(followed.query)
        if not is_certain and not self._registry.knows(server):
            raise no_answer(server)

    def _follow(self, server: str) -> Followed:
        """Subscribe to announcements of this server's browsers."""
        known = self._followed.pop(server, None)
        if known is None:
            known = Followed(self._cluster.bus.subscribe(self._cluster.subjects.presence(server), self._news))
        self._followed[server] = known  # in order of use: the most recent is last
        # Servers with a browser here are followed too, and never removed.
        if len(self._followed) - len(self.browsers) > MAX_FOLLOWED:
            self._unfollow_idle()
        return known

    def _unfollow_idle(self) -> None:
        """Stop following servers that were not used for longest. The next call queries them again."""
        remote: dict[str, list[RemotePeer]] = {}
        for peer in self._remote.present():
            remote.setdefault(server_of(peer.location.address), []).append(peer)
        *others, _ = self._followed.items()  # the last one is needed now
        idle = [
            (server, one)
            for server, one in others
            if one.query is None
            and not self.browsers.has(server)
            and all(peer.is_idle for peer in remote.get(server, ()))
        ]
        for server, followed in idle[: MAX_FOLLOWED // 4]:
            for peer in remote.get(server, ()):
                self._remote.remove(peer.location.address)
                self._registry.release(peer.location.address, peer)
            followed.close()
            del self._followed[server]

    async def _query_owner(self, server: str, followed: Followed) -> bool:
        """Query the bus. Returns whether it is certain now which relay has it, or that none has."""
        answered = asyncio.Event()
        found: list[dict[str, Any]] = []

        def receive(data: bytes | None) -> None:
            if data is not None:
                with suppress(BadEnvelope):
                    found.extend(envelope.unpack(data)[0].get("places", ()))
            answered.set()

        close = None
        try:
            data = envelope.pack({"op": "who", "from": self._cluster.id})
            close = self._cluster.bus.send(self._cluster.subjects.owner(server), data, receive)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOCATE_S):
                    await answered.wait()
            if found and server in self._settings.instances:
                await asyncio.sleep(GATHER_S)
            for row in found:
                self._update(row)
            followed.is_located = answered.is_set()
            if (peer := self._registry.holder(server)) is None or not peer.is_up:
                await self._learn_catalogue(server)
            return answered.is_set()
        finally:
            followed.query = None
            if close is not None:
                close()

    async def _learn_catalogue(self, server: str) -> None:
        """No relay has it now. Read its catalogue from a relay that had it before, if there is one."""
        try:
            if self._registry.find(server).catalogue is not None:
                return
        except UnknownServer:
            pass
        answers = await self._cluster.ask_all("known", {"server": server})
        if not answers:
            return
        self._registry.declare(server)
        seen = [answer for answer in answers if isinstance(answer.get("catalogue"), dict)]
        if seen:
            newest = max(seen, key=lambda answer: number(answer.get("last_seen")) or 0.0)
            catalogue, last_seen = Catalogue.from_dict(newest["catalogue"]), number(newest.get("last_seen"))
            if catalogue is not None:
                self._registry.catalogues.add_remote(server, catalogue, last_seen)

    def _answer_known(self, question: dict[str, Any]) -> dict[str, Any] | None:
        try:
            entry = self._registry.find(str(question.get("server")))
        except UnknownServer:
            return None
        answer: dict[str, Any] = {"last_seen": entry.last_seen}
        if entry.catalogue is not None and entry.size < self._cluster.bus.max_payload // 2:
            answer["catalogue"] = entry.catalogue.to_dict()
        return answer

    def _displace(self, address: str) -> BrowserLocation | None:
        """A browser of this relay has this address now."""
        before = self._remote.remove(address)
        holder = self._registry.holder(address)
        # A browser of this relay has claimed the calls, and gets them again.
        if holder is None or holder.kind is not PeerKind.BROWSER:
            self._fail_calls(address, f'Another browser took over "{address}" while it had the call.')
        return before.location if before is not None else None

    # -- browsers of other relays -------------------------------------------------------------------------------------

    def _news(self, message: BusMessage) -> None:
        with suppress(BadEnvelope):
            self._update(envelope.unpack(message.data)[0])

    def _update(self, row: dict[str, Any]) -> None:
        place, state = BrowserLocation.read(row), row.get("state")
        if place is None or place.node == self._cluster.id or server_of(place.address) not in self._followed:
            return
        known, held = self._remote.get(place.address), self.browsers.get(place.address)
        if state == "gone":
            if known is not None and known.location == place:
                self._drop(known)
            return
        if held is not None and not self._yields(held, place, row):
            return
        if known is not None and known.location.node == place.node and known.location.gen == place.gen:
            self._refresh(known, row)
        elif known is None or _is_better(place, row, known):
            self._adopt(place, row)

    def _yields(self, held: LocalBrowser, location: BrowserLocation, row: dict[str, Any]) -> bool:
        """Two relays have a browser of one name. The one that loses drops its socket, whichever relay learns of it
        first. L8: among different principals, a browser in its grace has the name like one that is up."""
        is_other = location.principal != held.location.principal
        if not (row.get("state") == "up" or (is_other and row.get("reserved") is True)):
            return False
        if (held.is_up or (is_other and held.peer.is_reserved)) and not location.beats(held.location):
            self.browsers.announce(held, held.state)
            return False
        return True

    def _refresh(self, known: RemotePeer, row: dict[str, Any]) -> None:
        address = known.location.address
        was_there, known.is_connected = known.is_connected, row.get("state") == "up"
        known.is_reserved = row.get("reserved") is not False
        if known.is_connected and not was_there:
            self._registry.take(address, known)
            self._update_tabs(address, row)
            known.resend_rest()
            self._on_up(address)
        elif known.is_connected:
            self._update_tabs(address, row)
        elif was_there:
            self._registry.mark_away(address, known)
        if known.is_connected and row.get("sync") is True:
            known.resend_all(list(self._remote.calls(address).values()))

    def _adopt(self, location: BrowserLocation, row: dict[str, Any]) -> None:
        """Take over a browser that is at another relay now, and its calls."""
        address = location.address
        calls = self._remote.calls(address)
        peer = RemotePeer(location, self._cluster, calls, self._replies.call_refused)
        peer.is_connected = row.get("state") == "up"
        peer.is_reserved = row.get("reserved") is not False
        self._remote.add(peer)
        displaced = self._registry.take(address, peer)
        self.browsers.release(address)
        # Notifications that clients sent while the browser moved between two relays went to the first.
        late = displaced.displace(location.inst) if displaced is not None else []
        self._registry.set_browser(address, location.browser)
        self._update_tabs(address, row)
        again, lost = calls.claim(location.inst)
        for pending in again:
            if self._has_moved(pending):
                calls.pop((pending.call.channel, pending.call.id), None)
        for pending in lost:
            if not self._has_moved(pending):
                pending.end(BrowserGone(f'Another browser took over "{address}" while it had the call.'))
        if peer.is_connected:
            peer.resend_rest()
        for said in late:
            peer.notify_late(*said)
        if peer.is_connected:
            self._on_up(address)
        else:
            self._registry.mark_away(address, peer)

    def _update_tabs(self, address: str, row: dict[str, Any]) -> None:
        tabs, turns, used = row.get("tabs"), row.get("turns"), row.get("used")
        if isinstance(tabs, list) and isinstance(turns, int):
            with suppress(TypeError, ValueError):
                known = tuple(TabInfo(str(id), str(title), visible is True) for id, title, visible in tabs)
                is_awake = row["awake"] if isinstance(row.get("awake"), bool) else None
                self._registry.set_tabs(address, TabReport(known, turns, is_awake=is_awake))
        if isinstance(used, int | float):
            self._registry.shared_names.record_remote_use(address, float(used))

    def left(self, address: str, node: str) -> None:
        """A relay says that it has ended the session of this browser."""
        known = self._remote.get(address)
        if known is not None and known.location.node == node:
            self._drop(known)

    def _drop(self, peer: RemotePeer) -> None:
        address = peer.location.address
        if self._remote.departed(peer):
            self._registry.release(address, peer)
            self._on_gone(address)

    def _node_lost(self, node: str) -> None:
        """A relay is lost. The outcome of its calls is unknown: they may have run, and may still run."""
        for peer in [peer for peer in self._remote.all() if peer.location.node == node]:
            address = peer.location.address
            self._fail_calls(
                address, f'The relay of "{address}" is gone, and its browser did not connect to another in time.'
            )
            self._drop(peer)

    def _stalled(self) -> None:
        """The other relays considered this one lost: they cancelled its calls and forgot its browsers."""
        self._tasks.start(self.browsers.announce_all())
        for peer in self._remote.all():
            address = peer.location.address
            text = (
                f'The relay was suspended, so the call to "{address}" was cancelled. Whether it had run is not known.'
            )
            self._fail_calls(address, text)

    def _given_up(self, node: str) -> None:
        """A relay considered this one lost and ended our sessions at its browsers. Adopt these browsers as new ones,
        the most recently used last, so that it is preferred again."""
        known = [(self._registry.find(peer.location.address), peer) for peer in self._remote.present()]
        known.sort(key=lambda one: one[0].last_used or 0.0)
        for entry, peer in known:
            if peer.location.node == node:
                tabs = [[tab.id, tab.title, tab.is_visible] for tab in entry.tabs]
                state = "up" if peer.is_connected else "away"
                row = {"state": state, "tabs": tabs, "turns": entry.focus_count, "awake": entry.is_awake}
                self._adopt(peer.location, row)

    def _fail_calls(self, address: str, text: str) -> None:
        """Fail the calls of an address: their outcome will not be reported."""
        for pending in self._remote.calls(address).abandon():
            pending.end(BrowserGone(text))

    def _bus_up(self) -> None:
        """The bus is back, and messages in between are lost. Announce our browsers, and resend calls that wait."""
        self._tasks.start(self.browsers.announce_all())
        for followed in self._followed.values():
            followed.is_located = False
        # Only these calls may be lost: those that are sent from now on arrive.
        asked: dict[str, list[tuple[RemotePeer, list[Pending]]]] = {}
        for peer in self._remote.all():
            if not peer.is_idle:
                calls = list(self._remote.calls(peer.location.address).values())
                asked.setdefault(server_of(peer.location.address), []).append((peer, calls))
        for server, calls_of in asked.items():
            self._tasks.start(self._resume(server, calls_of))

    async def _resume(self, server: str, asked: list[tuple[RemotePeer, list[Pending]]]) -> None:
        with suppress(RelayError, BusDown):
            await self._query_owner(server, self._follow(server))
        for peer, calls in asked:
            if self._remote.peer_with_calls(peer.location.address) is peer:  # else its successor has the calls
                peer.resend_all(calls)


def _is_better(location: BrowserLocation, row: dict[str, Any], known: RemotePeer) -> bool:
    """Of two browsers at other relays with one name, the one that is up has it, as both relays decide for themselves;
    among different principals, also one in its grace. Of two browsers at one relay, the newer one has it."""
    if location.node == known.location.node:
        return location.gen > known.location.gen
    is_other = location.principal != known.location.principal
    has_it = row.get("state") == "up" or (is_other and row.get("reserved") is True)
    # defence: take-over: a browser in its grace at another relay has the name
    had_it = known.is_connected or (is_other and known.is_reserved)
    return has_it if has_it != had_it else location.beats(known.location)
