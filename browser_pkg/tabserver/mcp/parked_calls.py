"""Parked calls: handlers that wait for a modern client's answer, and the sealed `requestState` that the client returns.

A modern client is not asked in the middle of a request: the response is the question, and the client sends the request
again with the answer. A state (a random handle, or a handler's own state) is signed for one principal, method and
arguments, expires, and is accepted once. The relay gives the next worker of a page the same key, so a handler's own
state survives a reload, and a lost handle is recognised as one. Calls are stopped and resumed in `call`, not here.
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
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from ..rpc import dump

T = TypeVar("T")

TTL_S: Final = 600.0
MOST_PARKED: Final = 32
# Outside the ranges that JSON-RPC and MCP reserve.
GONE: Final = -31011
BUSY: Final = -31013
MOST_USED_STATES: Final = 1024  # beyond this number, the states that expire first count as used
# Params that a retry adds, or that belong to one request only.
_OWN_TO_A_ROUND: Final = ("_meta", "inputResponses", "requestState")


def digest(method: str, params: dict[str, Any]) -> str:
    """Equal for a request and its retries only."""
    kept = {key: value for key, value in params.items() if key not in _OWN_TO_A_ROUND}
    text = json.dumps([method, kept], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class StateSeal:
    """Signature of the state that a client carries. The client can read it, but not change it."""

    def __init__(self) -> None:
        # The previous key still opens states: a relay may be replaced between question and answer.
        self._keys = [secrets.token_bytes(32)]

    def use(self, key: str) -> None:
        """Seal with this key from now on."""
        made = hashlib.sha256(b"tabserver state\0" + key.encode()).digest()
        if key and made != self._keys[0]:
            self._keys = [made, self._keys[0]]

    def close(self, held: dict[str, Any], principal: str, digest: str, until: float) -> str:
        # The nonce makes states with equal content different: each is accepted once.
        body = _encode(dump(held | {"x": until, "n": secrets.token_urlsafe(9)}).encode())
        return f"{body}.{_mark(self._keys[0], body, principal, digest)}"

    def open(self, state: str, principal: str, digest: str, now: float) -> dict[str, Any] | None:
        """The content; None if the state is foreign, of another caller, for another request, or expired."""
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
    """Nonces of states that were used, until they expire: a call that the user approved once must not run again."""

    def __init__(self, most: int = MOST_USED_STATES) -> None:
        self._most = most
        self._until: dict[str, float] = {}
        self._expired_until = -math.inf  # states that expire by then count as used

    def __len__(self) -> int:
        return len(self._until)

    def use(self, held: dict[str, Any]) -> bool:
        """Whether this is its first use."""
        number, until = str(held.get("n")), float(held["x"])
        # defence: a state that comes back twice
        # defence: states that others push out
        if until <= self._expired_until or number in self._until:
            return False
        self._until[number] = until
        if len(self._until) > self._most:
            ends = sorted(self._until.values())
            self._expired_until = ends[len(ends) // 4]
            self._until = {number: end for number, end in self._until.items() if end > self._expired_until}
        return True

    def release(self, held: dict[str, Any]) -> None:
        """Nothing ran: the state may be used again."""
        self._until.pop(str(held.get("n")), None)


def _mark(key: bytes, body: str, principal: str, digest: str) -> str:
    text = json.dumps([body, principal, digest])
    return _encode(hmac.new(key, text.encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class ParkedHandles(Generic[T]):
    """Parked items by handle. Each handle is accepted once."""

    def __init__(self, most: int = MOST_PARKED, on_change: Callable[[], None] = lambda: None) -> None:
        """`most`: parked items of one principal. `on_change`: the first item was parked, or the last one was taken."""
        self._most = most
        self._on_change = on_change
        # Distinguishes the handles of this worker from those of another.
        self.worker_id = secrets.token_hex(4)
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
        if len(self._waiting) == 1:
            self._on_change()
        return handle

    def take(self, handle: str) -> T | None:
        """The caller of this method has verified the seal, so the handle belongs to the client."""
        item, principal = self._waiting.pop(handle, (None, None))
        if principal is not None:
            self._counts[principal] -= 1
            if not self._counts[principal]:
                del self._counts[principal]
            if not self._waiting:
                self._on_change()
        return item
