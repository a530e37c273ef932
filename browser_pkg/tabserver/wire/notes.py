"""What a worker says to the relay itself, on a caller's channel, as a notification. No client sees these."""

from __future__ import annotations

from typing import Final

# The event stream of a request ends, while the request goes on.
CLOSE_STREAM: Final = "$/tabrelay/closeStream"
# From now on the caller's requests go to one tab; with `tab` null, to whichever is in front.
PIN: Final = "$/tabrelay/pin"
