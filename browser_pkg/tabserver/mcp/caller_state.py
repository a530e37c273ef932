"""State of handlers per caller: a dict that the caller's next request finds again.

A session is one caller, however often its channel changes. A modern client has no session: token and client name
identify it, so two windows of one client share their state. States expire after `LIFE_S`, and the least recently
used ones are dropped beyond `MOST_CALLERS`. Nothing is stored: the state ends with the worker or page.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from ..wire.eras import Era
from ..wire.frames import Caller

MOST_CALLERS: Final = 1000
LIFE_S: Final = 24 * 3600.0


def caller_key(caller: Caller, channel: str = "") -> str:
    """Equal for all requests of one caller. `channel`: identifies a session without an id."""
    if caller.era is Era.LEGACY:
        return _key("session", caller.session or channel)
    name = (caller.client or {}).get("name")
    return _client_key(caller.principal, name) if isinstance(name, str) else _key("client", caller.principal, name)


def _key(*parts: Any) -> str:
    return json.dumps(parts)


@lru_cache(maxsize=64)
def _client_key(principal: str, name: str) -> str:
    return _key("client", principal, name)


class CallerStates:
    """By key, least recently used first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str, tuple[float, dict[str, Any]]] = {}

    def of(self, key: str) -> dict[str, Any]:
        now = self._clock()
        state = self._held.pop(key, (now, {}))[1]
        for old, (used, _) in list(self._held.items()):
            if len(self._held) < MOST_CALLERS and now - used <= LIFE_S:
                break
            del self._held[old]
        self._held[key] = now, state
        return state

    def __len__(self) -> int:
        return len(self._held)
