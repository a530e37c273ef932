"""Subject names on the bus, derived from a key that the relays of one installation share.

Server names are digests under that key: none can contain a dot or a wildcard, the operator of the bus does not see
which servers exist, and relays of two installations on one bus never exchange messages. Pure: subscribes to nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

ROOT: Final = "rl"
# Where the relays of all installations announce themselves.
ANNOUNCEMENTS: Final = f"{ROOT}.hall"
DIGEST_LENGTH: Final = 26


class Subjects:
    """The subjects of one installation."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"tabrelay bus\0" + key).digest()
        self.realm = self._digest("realm", "")[:10]
        self._prefix = f"{ROOT}.{self.realm}"

    @property
    def beats(self) -> str:
        """Beats of all nodes, every two seconds."""
        return f"{self._prefix}.hb"

    @property
    def all_nodes(self) -> str:
        """Questions to every node."""
        return f"{self._prefix}.all"

    def node(self, id: str) -> str:
        """Messages to one node."""
        return f"{self._prefix}.in.{id}"

    def owner(self, server: str) -> str:
        """Relays that have browsers of this server. The subscription itself is the presence record."""
        return f"{self._prefix}.own.{self._digest('server', server)}"

    def presence(self, server: str) -> str:
        """Announces that a browser of this server is connected, away or gone."""
        return f"{self._prefix}.up.{self._digest('server', server)}"

    def _digest(self, kind: str, text: str) -> str:
        mac = hmac.digest(self._key, f"{kind}\0{text}".encode(), "sha256")
        return base64.b32encode(mac).decode().lower()[:DIGEST_LENGTH]
