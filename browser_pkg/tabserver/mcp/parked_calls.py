"""Where calls wait that asked a modern client something, and the seal on what the client carries back.

A modern client is not asked in the middle of a request: the request is answered with the question, and made again with
the answer. Meanwhile the handler stands still, here, under a random handle. The client gets the handle, or a handler's
own state, with a seal: only for the same principal, method and arguments, only for a while, and once. The relay gives
the page's next worker the same key: a handler's own state outlives a reload, and of a call that stood still it can be
said that it went with its worker.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import secrets
from collections import Counter
from typing import Any, Final, Generic, TypeVar

from ..rpc import dump

T = TypeVar("T")

TTL_S: Final = 600.0
MOST_PARKED: Final = 32
MOST_SPENT: Final = 1024  # states that came back already; beyond that, those that are nearly too old count as spent
# What a retry adds to the request that it repeats, and what is about one request only.
_OWN_TO_A_ROUND: Final = ("_meta", "inputResponses", "requestState")


def digest(method: str, params: dict[str, Any]) -> str:
    """The same for a request and its retries, and for nothing else."""
    kept = {key: value for key, value in params.items() if key not in _OWN_TO_A_ROUND}
    text = json.dumps([method, kept], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class StateSeal:
    """Signs what a client carries. The client can read it, but not change it, nor use it for another request."""

    def __init__(self) -> None:
        # What is closed with the last key but one is still opened: a relay may be replaced while a client thinks.
        self._keys = [secrets.token_bytes(32)]

    def use(self, key: str) -> None:
        """Seal with this from now on."""
        made = hashlib.sha256(b"tabserver state\0" + key.encode()).digest()
        if key and made != self._keys[0]:
            self._keys = [made, self._keys[0]]

    def close(self, held: dict[str, Any], principal: str, digest: str, until: float) -> str:
        # Two that hold the same are two all the same, and each is good once.
        body = _encode(dump(held | {"x": until, "n": secrets.token_urlsafe(9)}).encode())
        return f"{body}.{_mark(self._keys[0], body, principal, digest)}"

    def open(self, state: str, principal: str, digest: str, now: float) -> dict[str, Any] | None:
        """What was sealed; None if it is not ours, not this caller's, not for this request, or too old."""
        body, _, mark = state.partition(".")
        given = mark.encode(errors="replace")
        marks = [_mark(key, body, principal, digest).encode() for key in self._keys]
        if not any(hmac.compare_digest(given, expected) for expected in marks):
            return None
        try:
            held: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            return None
        return held if now < held["x"] else None


class UsedStates:
    """States that came back, by their numbers, until they are too old: with the same one, a call that somebody allowed
    once would run again."""

    def __init__(self, most: int = MOST_SPENT) -> None:
        self._most = most
        self._until: dict[str, float] = {}
        self._floor = -math.inf  # whatever ends by then counts as spent

    def __len__(self) -> int:
        return len(self._until)

    def spend(self, held: dict[str, Any]) -> bool:
        """Is it the first time?"""
        number, until = str(held.get("n")), float(held["x"])
        # defence: a state that comes back twice
        # defence: states that others push out
        if until <= self._floor or number in self._until:
            return False
        self._until[number] = until
        if len(self._until) > self._most:
            ends = sorted(self._until.values())
            self._floor = ends[len(ends) // 4]
            self._until = {number: end for number, end in self._until.items() if end > self._floor}
        return True

    def give_back(self, held: dict[str, Any]) -> None:
        """Nothing came of it."""
        self._until.pop(str(held.get("n")), None)


def _mark(key: bytes, body: str, principal: str, digest: str) -> str:
    text = json.dumps([body, principal, digest])
    return _encode(hmac.new(key, text.encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class ParkedHandles(Generic[T]):
    """What waits, by handle. Each handle is good once."""

    def __init__(self, most: int = MOST_PARKED) -> None:
        """`most`: how many of one principal may wait at a time."""
        self._most = most
        # Tells the parking of this worker from that of another.
        self.place = secrets.token_hex(4)
        self._waiting: dict[str, tuple[T, str]] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room(self, principal: str) -> bool:
        return self._counts[principal] < self._most

    def park(self, item: T, principal: str) -> str:
        handle = secrets.token_urlsafe(18)
        self._waiting[handle] = (item, principal)
        self._counts[principal] += 1
        return handle

    def take(self, handle: str) -> T | None:
        """The seal around the handle has said whose it is."""
        item, principal = self._waiting.pop(handle, (None, None))
        if principal is not None:
            self._counts[principal] -= 1
            if not self._counts[principal]:
                del self._counts[principal]
        return item
