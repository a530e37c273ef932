"""Pages of other origins that ask to be paired: who asks for what, with which code, and what became of it.

    ask ──► waiting ──approve──► approved ──picked up──► (a token)
               │                    └──120 s more──────► expired
               ├─────refuse────► refused
               └──120 s────────► expired

The person compares the code that the page shows with the one that the relay shows, and approves by it: so whoever asks
in the name of the same origin at the same moment is not approved by mistake. Only the page that asked can pick the
token up, with a secret of 128 bits. Time is an argument; who is told, and how tokens are made, is not known here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAX_WAITING: Final = 3
LIFE_S: Final = 120.0
ASK_EVERY_S: Final = 5.0  # a page that asks in a loop must not fill the terminal
MAX_WRONG: Final = 5
BLOCK_S: Final = 600.0
MAX_REMEMBERED: Final = 256  # origins that were refused or wrong; the oldest are forgotten first


class State(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Refused:
    """This origin can't ask now; `retry_s` says when it can."""

    reason: str
    message: str
    retry_s: float


@dataclass(slots=True)
class Asking:
    """One request to be paired."""

    code: str
    origin: str
    server: str
    since: float
    state: State = State.WAITING

    def is_waiting(self, now: float) -> bool:
        return self.state is State.WAITING and now < self.since + LIFE_S

    def is_over(self, now: float) -> bool:
        """A page that waits for its answer has it at once: one that comes much later is not who was approved."""
        return now >= self.since + (2 * LIFE_S if self.state is State.APPROVED else LIFE_S)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the page gets: the code to show, and the secret with which it picks the answer up."""

    request: str
    code: str
    life_s: float


@dataclass(slots=True)
class _Record:
    """What an origin did wrong, and until when it is not listened to."""

    wrong: int = 0
    since: float = 0.0
    blocked_until: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Pairing:
    """The requests of one relay. They live in memory: after a restart a page asks again."""

    _askings: dict[str, Asking] = field(default_factory=dict)  # by the digest of the page's secret
    _records: OrderedDict[str, _Record] = field(default_factory=OrderedDict)

    def ask(self, origin: str, server: str, now: float) -> Ticket | Refused:
        """An origin has one request at a time: asked again, the earlier one and its code are void."""
        blocked = self._blocked(origin, now)
        if blocked is not None:
            return blocked
        for asking in self.waiting(now):
            if asking.origin == origin and now < asking.since + ASK_EVERY_S:
                return Refused("busy", "This page asked a moment ago.", asking.since + ASK_EVERY_S - now)
        self._askings = {
            digest: asking
            for digest, asking in self._askings.items()
            if asking.origin != origin and now < asking.since + 2 * LIFE_S
        }
        waiting = self.waiting(now)
        if len(waiting) >= MAX_WAITING:
            retry_s = min(asking.since for asking in waiting) + LIFE_S - now
            text = f"{MAX_WAITING} pages are waiting for an answer already. Answer them first: tabrelay pairs"
            return Refused("busy", text, retry_s)
        request = secrets.token_urlsafe(16)
        asking = Asking(self._new_code(), origin, server, now)
        self._askings[_digest(request)] = asking
        return Ticket(request, asking.code, LIFE_S)

    def waiting(self, now: float) -> list[Asking]:
        return [asking for asking in self._askings.values() if asking.is_waiting(now)]

    def decide(self, code: str, *, approve: bool, now: float) -> Asking | None:
        """Approve or refuse the request with this code; None if there is none (any more)."""
        for asking in self.waiting(now):
            if secrets.compare_digest(asking.code.encode(), code.encode("utf-8", "surrogatepass")):
                asking.state = State.APPROVED if approve else State.REFUSED
                if not approve:
                    record = self._record(asking.origin, now)
                    record.blocked_until, record.reason = now + BLOCK_S, "This page was refused."
                return asking
        return None

    def look(self, request: str, origin: str, now: float, *, is_known: bool = False) -> Asking | Refused | None:
        """The request as the page that made it sees it. None: this origin never asked with that secret, or a later
        request took its place. `is_known`: the secret was right before; otherwise, after five wrong ones, the origin is
        not listened to for a while."""
        blocked = self._blocked(origin, now)
        asking = self._askings.get(_digest(request))
        if asking is not None and asking.origin == origin:
            if asking.state is not State.REFUSED and asking.is_over(now):
                asking.state = State.EXPIRED
            return asking
        if blocked is not None or is_known:
            return blocked
        record = self._record(origin, now)
        record.wrong += 1
        if record.wrong >= MAX_WRONG:
            record.wrong = 0
            record.blocked_until, record.reason = now + BLOCK_S, "This page gave wrong codes too often."
        return None

    def pick_up(self, request: str) -> None:
        """The page has its token: the request is over, and what the origin did wrong before is forgiven."""
        asking = self._askings.pop(_digest(request), None)
        if asking is not None:
            self._records.pop(asking.origin, None)

    def _blocked(self, origin: str, now: float) -> Refused | None:
        record = self._records.get(origin)
        if record is None or now >= record.blocked_until:
            return None
        left_s = record.blocked_until - now
        return Refused("blocked", f"{record.reason} It can ask again in {left_s / 60:.0f} min.", left_s)

    def _record(self, origin: str, now: float) -> _Record:
        record = self._records.get(origin)
        if record is None or now - record.since > BLOCK_S:
            record = self._records[origin] = _Record(since=now)
        self._records.move_to_end(origin)
        while len(self._records) > MAX_REMEMBERED:
            # Whoever comes under many names must not make the relay forget whom it does not listen to.
            harmless = (
                name for name, each in self._records.items() if now >= each.blocked_until and each is not record
            )
            del self._records[next(harmless, next(iter(self._records)))]
        return record

    def _new_code(self) -> str:
        taken = {asking.code for asking in self._askings.values()}
        while (code := f"{secrets.randbelow(10_000):04}") in taken:
            pass
        return code


def _digest(request: str) -> str:
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
