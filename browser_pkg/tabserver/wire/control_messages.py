"""Control messages between worker and relay: JSON-RPC notifications that the relay never passes on to a client (F5).

Only their names and the checks of their values are here. `translation` and `peers` act on them.
"""

from __future__ import annotations

from typing import Final, TypeGuard

# The principal of the relay's own calls; no token has a name like this.
RELAY: Final = "relay"
# Prefix of their method names.
OURS: Final = "$/tabrelay/"
# L16: replaces a frame that the other end refused. It has no content.
DROPPED: Final = "$/tabrelay/dropped"
# F5: the event stream of a request ends, while the request goes on.
CLOSE_STREAM: Final = "$/tabrelay/closeStream"
# Characters of a tab's id. Pages choose their ids, and the relay stores those that callers have pinned.
MAX_TAB_ID: Final = 64
# F5: from now on the caller's requests go to one tab; with `tab` null, to the tab in front.
PIN: Final = "$/tabrelay/pin"
# F5: the list of tabs, on the relay's own channel. `used` counts how often the user has switched to one of them.
TABS: Final = "$/tabrelay/tabs"

# F5: what the server says of itself is different now: `initialize` answers with it. On the relay's own channel.
ABOUT: Final = "$/tabrelay/about"


def is_tab_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_TAB_ID


def is_pin(value: object) -> TypeGuard[str | None]:
    """May this be the `tab` of a pin? Null ends one."""
    return value is None or is_tab_id(value)
