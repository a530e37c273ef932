"""Table of browsers at other relays: those that are connected, and those that left with calls of this relay pending.

A relay that no longer has a browser reports so for each call separately. So the peer that got the calls stays in the
table until each call has ended, is sent to another peer, or is lost with its relay. The table sends nothing itself.
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
        """The browser at this address, if it is connected."""
        return self._present.get(address)

    def peer_with_calls(self, address: str) -> RemotePeer | None:
        """The peer that got the calls for this address, if it is at another relay."""
        return self._present.get(address) or self._departed.get(address)

    def present(self) -> list[RemotePeer]:
        return list(self._present.values())

    def all(self) -> list[RemotePeer]:
        return [*self._present.values(), *self._departed.values()]

    def calls(self, address: str) -> PendingCalls[Pending]:
        return self._calls_by_address.setdefault(address, PendingCalls())

    def add(self, peer: RemotePeer) -> None:
        """It is connected. The peer that had the address before has no calls any more."""
        self.remove(peer.location.address)
        self._present[peer.location.address] = peer

    def remove(self, address: str) -> RemotePeer | None:
        """No other relay has this address now. Returns the peer that had it, if that was still connected."""
        there, left = self._present.pop(address, None), self._departed.pop(address, None)
        for peer in (there, left):
            if peer is not None:
                peer.close()
        return there

    def departed(self, peer: RemotePeer) -> bool:
        """It is no longer connected. Returns whether it was until now."""
        address = peer.location.address
        was_there = self._present.get(address) is peer
        if was_there:
            self._departed[address] = self._present.pop(address)
        for one in [one for one in self._departed if not self._has_calls(one)]:
            self._departed.pop(one).close()
        return was_there

    def _has_calls(self, address: str) -> bool:
        """Has it calls that wait? Calls that ended by their deadline, without their browser, are removed here."""
        calls = self.calls(address)
        for key in [key for key, pending in calls.items() if pending.is_done]:
            del calls[key]
        return bool(calls)
