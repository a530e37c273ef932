"""The browsers at other relays, as this one knows them: those that are there, and those that left calls of ours behind.

A relay that has a browser no longer says so of each call that it is asked for, one after the other. So it stays known
whom a browser's calls were asked of until each of them has ended, is asked of somebody else, or is lost with its
relay.
"""

from __future__ import annotations

from tabrelay.calls.calls import Pending
from tabrelay.peers.nodes.remote_peer import RemotePeer
from tabserver.wire.pending_calls import PendingCalls


class RemoteBrowsers:
    """One per relay that is on a bus."""

    def __init__(self, rosters: dict[str, PendingCalls[Pending]]) -> None:
        self._rosters = rosters
        self._there: dict[str, RemotePeer] = {}
        self._left: dict[str, RemotePeer] = {}

    def get(self, address: str) -> RemotePeer | None:
        """The browser at this address, if it is there."""
        return self._there.get(address)

    def asked(self, address: str) -> RemotePeer | None:
        """Whom the calls for this address were asked of, if that is somebody at another relay."""
        return self._there.get(address) or self._left.get(address)

    def known(self) -> list[RemotePeer]:
        return list(self._there.values())

    def all(self) -> list[RemotePeer]:
        return [*self._there.values(), *self._left.values()]

    def roster(self, address: str) -> PendingCalls[Pending]:
        return self._rosters.setdefault(address, PendingCalls())

    def put(self, peer: RemotePeer) -> None:
        """It is there. Whoever had the address before has no calls any more."""
        self.remove(peer.place.address)
        self._there[peer.place.address] = peer

    def remove(self, address: str) -> RemotePeer | None:
        """Whoever is asked now, it is nobody at another relay; gives who it was, if it was still there."""
        there, left = self._there.pop(address, None), self._left.pop(address, None)
        for peer in (there, left):
            if peer is not None:
                peer.close()
        return there

    def leave(self, peer: RemotePeer) -> bool:
        """It is not there any more; was it, until now?"""
        address = peer.place.address
        was_there = self._there.get(address) is peer
        if was_there:
            self._left[address] = self._there.pop(address)
        for one in [one for one in self._left if not self._is_awaited(one)]:
            self._left.pop(one).close()
        return was_there

    def _is_awaited(self, address: str) -> bool:
        """Calls may end without their browser, by their deadline: nobody could be told then to forget them."""
        roster = self.roster(address)
        for key in [key for key, pending in roster.items() if pending.is_done]:
            del roster[key]
        return bool(roster)
