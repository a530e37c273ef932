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

    def __init__(self, calls_by_address: dict[str, PendingCalls[Pending]]) -> None:
        self._calls_by_address = calls_by_address
        self._present: dict[str, RemotePeer] = {}
        self._departed: dict[str, RemotePeer] = {}

    def get(self, address: str) -> RemotePeer | None:
        """The browser at this address, if it is there."""
        return self._present.get(address)

    def peer_with_calls(self, address: str) -> RemotePeer | None:
        """Whom the calls for this address were asked of, if that is somebody at another relay."""
        return self._present.get(address) or self._departed.get(address)

    def present(self) -> list[RemotePeer]:
        return list(self._present.values())

    def all(self) -> list[RemotePeer]:
        return [*self._present.values(), *self._departed.values()]

    def calls(self, address: str) -> PendingCalls[Pending]:
        return self._calls_by_address.setdefault(address, PendingCalls())

    def add(self, peer: RemotePeer) -> None:
        """It is there. Whoever had the address before has no calls any more."""
        self.remove(peer.location.address)
        self._present[peer.location.address] = peer

    def remove(self, address: str) -> RemotePeer | None:
        """Whoever is asked now, it is nobody at another relay; gives who it was, if it was still there."""
        there, left = self._present.pop(address, None), self._departed.pop(address, None)
        for peer in (there, left):
            if peer is not None:
                peer.close()
        return there

    def departed(self, peer: RemotePeer) -> bool:
        """It is not there any more; was it, until now?"""
        address = peer.location.address
        was_there = self._present.get(address) is peer
        if was_there:
            self._departed[address] = self._present.pop(address)
        for one in [one for one in self._departed if not self._has_calls(one)]:
            self._departed.pop(one).close()
        return was_there

    def _has_calls(self, address: str) -> bool:
        """Calls may end without their browser, by their deadline: nobody could be told then to forget them."""
        calls = self.calls(address)
        for key in [key for key, pending in calls.items() if pending.is_done]:
            del calls[key]
        return bool(calls)
