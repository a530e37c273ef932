"""What a worker says to the relay itself, on a caller's channel, as a notification. No client sees these."""

from __future__ import annotations

from typing import Final, TypeGuard

# The principal of the relay's own calls; no token has a name like this.
RELAY: Final = "relay"
# How the names of these notes begin.
OURS: Final = "$/tabrelay/"
# Stands for a frame that could not be carried. It says nothing.
DROPPED: Final = "$/tabrelay/dropped"
# The event stream of a request ends, while the request goes on.
CLOSE_STREAM: Final = "$/tabrelay/closeStream"
# Characters of a tab's id. Pages choose theirs, and the relay keeps those that callers have pinned.
MAX_TAB_ID: Final = 64
# From now on the caller's requests go to one tab; with `tab` null, to whichever is in front.
PIN: Final = "$/tabrelay/pin"
# Which tabs there are, on the relay's own channel. `used` counts how often the user has turned to one of them.
TABS: Final = "$/tabrelay/tabs"


def is_tab_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_TAB_ID


def is_pin(value: object) -> TypeGuard[str | None]:
    """May this be the `tab` of a pin? Null ends one."""
    return value is None or is_tab_id(value)
