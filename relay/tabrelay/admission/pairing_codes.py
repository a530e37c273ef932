"""One-time pairing codes: short-lived secrets that a page trades for a token.

A code has 128 bits, works once, and is stored only as a digest. Time is an argument, so expiry is tested without
waiting. Codes are deliberately kept in memory only: after a restart none is pending.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

OPENER_TTL_S = 60.0  # the code for the browser that the relay itself opens
PERSON_TTL_S = 600.0  # the code printed for a person to click or copy
MAX_PENDING = 16


class PairingCodeError(StrEnum):
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PairingCode:
    """What a code is for: the server that its page may serve (None: any), and when it expires."""

    server: str | None
    expires_at: float


class PairingCodes:
    """The pending codes, at most `max_pending`: one more drops the oldest."""

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
        """The code's row. An expired one is kept until it is dropped, so that the page gets the right error."""
        found = self._pending.get(_digest(code))
        if found is None:
            return PairingCodeError.UNKNOWN
        # defence: a pairing code ends
        return PairingCodeError.EXPIRED if now >= found.expires_at else found

    def use_up(self, code: str) -> None:
        # defence: a pairing code works once
        self._pending.pop(_digest(code), None)


def _digest(code: str) -> str:
    # A lookup by digest instead of by code prevents timing attacks on the comparison.
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
