"""One-time pairing codes: short-lived secrets that a page trades for a token.

A code has 128 bits, works once, and is kept only as a digest. The time is an argument, so expiry is tested without
waiting. Codes live in memory on purpose: a relay that was restarted has none pending.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

OPENER_TTL_S = 60.0  # the code handed to the browser that the relay itself opens
PERSON_TTL_S = 600.0  # the code printed for a person to click or copy
MAX_PENDING = 16


class PairingCodeError(StrEnum):
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PairingCode:
    """What a code stands for: the server it may serve (None: any) and when it ends."""

    server: str | None
    expires_at: float


class PairingCodes:
    """The pending codes, bounded: minting one more drops the oldest."""

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._pending: OrderedDict[str, PairingCode] = OrderedDict()

    def mint(self, server: str | None, ttl_s: float, now: float) -> str:
        code = secrets.token_urlsafe(16)
        self._pending[_digest(code)] = PairingCode(server, now + ttl_s)
        while len(self._pending) > self._max_pending:
            self._pending.popitem(last=False)
        return code

    def find(self, code: str, now: float) -> PairingCode | PairingCodeError:
        """What a code is for. An expired one stays until it is pushed out, so that the page can say which it was."""
        found = self._pending.get(_digest(code))
        if found is None:
            return PairingCodeError.UNKNOWN
        # defence: a pairing code ends
        return PairingCodeError.EXPIRED if now >= found.expires_at else found

    def use_up(self, code: str) -> None:
        # defence: a pairing code works once
        self._pending.pop(_digest(code), None)


def _digest(code: str) -> str:
    # Looking up a digest instead of the code takes the timing of the comparison away from the attacker.
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
