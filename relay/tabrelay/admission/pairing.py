"""Pairing requests of pages on other origins: sealed tickets, and what the user decided about them.

    ask ──► waiting ──approve──► approved ──collected──► (a token)
               │                    └──120 s more──────► expired
               ├─────refuse────► refused
               └──120 s────────► expired

Asking stores nothing that others could use up. The request is a ticket, sealed with a key of this process, that holds
origin, server, code and time; the page keeps it. So a program that sends any number of requests under any number of
origins can't stop another page from asking, void its request or have its origin blocked. Memory is taken only by the
rows that the user is shown (a few) and by what the user decided.

The user compares the code on the page with the one that the relay shows, and approves by it. The code is long enough
that a second ticket with the same one can't be collected within its life, so it also decides on requests that are not
shown. Only the ticket's holder, on the same origin, collects the token. Time is an argument. Does not notify users and
does not create tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

MAX_SHOWN: Final = 3  # requests in the list that the user sees
MAX_DECIDED: Final = 256  # decisions and muted origins that are kept; only the user makes new ones
LIFE_S: Final = 120.0
NOTIFY_EVERY_S: Final = 5.0  # a page that sends requests in a loop does not fill the terminal
MUTE_S: Final = 600.0  # requests of an origin that the user refused are not shown for this long
# 28 characters that are not easily confused, and no vowels: 38 bits in eight of them.
ALPHABET: Final = "23456789BCDFGHJKMNPQRSTVWXYZ"
CODE_LENGTH: Final = 8  # and a dash in the middle
_SEAL_BYTES: Final = 16
_NOT_IN_CODE: Final = re.compile(f"[^{ALPHABET}]")


class PairingState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """One request to be paired."""

    code: str
    origin: str
    server: str
    since: float
    state: PairingState = PairingState.WAITING

    def is_waiting(self, now: float) -> bool:
        return self.state is PairingState.WAITING and now < self.since + LIFE_S


@dataclass(frozen=True, slots=True)
class PairingTicket:
    """What the page gets: the code to show, and the sealed request with which it collects the answer."""

    request: str
    code: str
    life_s: float
    is_shown: bool  # in the user's list
    is_user_notified: bool  # is the user notified of it now?


@dataclass(frozen=True, slots=True)
class _Decision:
    state: PairingState
    until: float
    is_collected: bool = False


@dataclass(slots=True)
class Pairing:
    """The requests of one relay process. After a restart a page asks again."""

    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _shown: dict[tuple[str, str], PairingRequest] = field(default_factory=dict)  # by origin and server
    _decided: OrderedDict[str, _Decision] = field(default_factory=OrderedDict)  # by code
    _muted: OrderedDict[str, float] = field(default_factory=OrderedDict)  # origin -> until when

    def ask(self, origin: str, server: str, now: float) -> PairingTicket:
        """A new request. An earlier one of the same page stays valid: another program may have sent this one."""
        asking = PairingRequest(_new_code(), origin, server, now)
        before = self._shown.get((origin, server))
        is_new = before is None or not before.is_waiting(now)
        # defence: pages that ask at once
        is_shown = now >= self._muted.get(origin, now) and (not is_new or len(self.waiting(now)) < MAX_SHOWN)
        if is_shown:
            self._shown = {key: each for key, each in self._shown.items() if each.is_waiting(now)}
            self._shown[origin, server] = asking
        is_user_notified = is_shown and (before is None or is_new or now >= before.since + NOTIFY_EVERY_S)
        return PairingTicket(self._seal(asking), asking.code, LIFE_S, is_shown, is_user_notified)

    def ask_approved(self, origin: str, server: str, now: float) -> PairingTicket:
        """A new request that an earlier approval covers. The ticket contains that: nothing is stored before its page
        collects the token."""
        asking = PairingRequest(_new_code(), origin, server, now, PairingState.APPROVED)
        return PairingTicket(self._seal(asking), asking.code, LIFE_S, is_shown=False, is_user_notified=False)

    def waiting(self, now: float) -> list[PairingRequest]:
        """The requests that the user is shown."""
        return [asking for asking in self._shown.values() if asking.is_waiting(now)]

    def decide(self, code: str, *, approve: bool, now: float) -> PairingRequest | None:
        """Approve or refuse a request that is shown; None if there is none with this code."""
        code = canonical(code)
        for key, asking in list(self._shown.items()):
            if asking.is_waiting(now) and secrets.compare_digest(asking.code, code):
                del self._shown[key]
                state = PairingState.APPROVED if approve else PairingState.REFUSED
                self._record(code, _Decision(state, asking.since + (2 * LIFE_S if approve else LIFE_S)), now)
                if not approve:
                    self._mute(asking.origin, now)
                return replace(asking, state=state)
        return None

    def approve_unseen(self, code: str, now: float) -> bool:
        """Approve a request that is not shown. Its page must collect the token soon, see `withdraw`. False: the code
        can't be one, or was decided on."""
        code = canonical(code)
        # defence: a refusal of a forged request blocks its origin
        if len(code) != CODE_LENGTH + 1 or self._decision(code, now) is not None:
            return False
        self._record(code, _Decision(PairingState.APPROVED, now + LIFE_S), now)
        return True

    def withdraw(self, code: str) -> None:
        """Take back an approval that was not collected."""
        decision = self._decided.get(canonical(code))
        if decision is not None and not decision.is_collected:
            del self._decided[canonical(code)]

    def find(self, request: str, origin: str, now: float) -> PairingRequest | None:
        """The request as its page sees it. None: it is not a ticket of this process for this origin, or its token was
        collected. A wrong one changes nothing: a ticket can't be guessed, and any client can send wrong ones."""
        asking = self._unseal(request)
        if asking is None or asking.origin != origin:
            return None
        decision = self._decision(asking.code, now)
        if decision is not None:
            return None if decision.is_collected else replace(asking, state=decision.state)
        return asking if now < asking.since + LIFE_S else replace(asking, state=PairingState.EXPIRED)

    def collect(self, request: str, now: float) -> None:
        """The page has its token: no other holder of the ticket gets one."""
        asking = self._unseal(request)
        if asking is not None:
            self._record(
                asking.code, _Decision(PairingState.APPROVED, asking.since + 2 * LIFE_S, is_collected=True), now
            )

    def _decision(self, code: str, now: float) -> _Decision | None:
        decision = self._decided.get(code)
        # defence: an approval that was not collected
        return decision if decision is not None and now < decision.until else None

    def _record(self, code: str, decision: _Decision, now: float) -> None:
        self._decided[code] = decision
        for old in [old for old, each in self._decided.items() if now >= each.until]:
            del self._decided[old]
        while len(self._decided) > MAX_DECIDED:
            self._decided.popitem(last=False)

    def _mute(self, origin: str, now: float) -> None:
        """An origin can be forged, so a refusal keeps it from being shown and not from being approved by its code."""
        self._muted[origin] = now + MUTE_S
        self._muted.move_to_end(origin)
        while len(self._muted) > MAX_DECIDED:
            self._muted.popitem(last=False)

    def _seal(self, asking: PairingRequest) -> str:
        fields = [asking.code, asking.origin, asking.server, asking.since, asking.state, secrets.token_hex(16)]
        return _encode(self._mac(text := json.dumps(fields).encode()) + text)

    def _unseal(self, request: str) -> PairingRequest | None:
        sealed = _decode(request)
        if sealed is None:
            return None
        seal, text = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        # defence: a ticket's seal
        if not hmac.compare_digest(seal, self._mac(text)):
            return None
        code, origin, server, since, state, _ = json.loads(text)
        return PairingRequest(code, origin, server, since, PairingState(state))

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, hashlib.sha256)[:_SEAL_BYTES]


def canonical(code: str) -> str:
    """A code as a person may type it (without the dash, in lower case) in the form in which it is shown."""
    characters = _NOT_IN_CODE.sub("", code[: 4 * CODE_LENGTH].upper())
    return f"{characters[: CODE_LENGTH // 2]}-{characters[CODE_LENGTH // 2 :]}"


def _new_code() -> str:
    return canonical("".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH)))


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:  # also for text that is not ASCII
        return None
