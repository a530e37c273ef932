"""What things are called on the bus. Pure.

Names are digests under a key that the relays of one installation share: nobody can put a dot or a wildcard into one, a
bus's operator does not read which servers there are, and relays of two installations on one bus never meet.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

ROOT: Final = "rl"
# Where relays of whatever installation say that they are there.
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
        """Every node, every two seconds: I am here."""
        return f"{self._prefix}.hb"

    @property
    def all_nodes(self) -> str:
        """Questions to every node."""
        return f"{self._prefix}.all"

    def node(self, id: str) -> str:
        """Whatever is for one node."""
        return f"{self._prefix}.in.{id}"

    def owner(self, server: str) -> str:
        """Who has browsers of this server? That somebody listens here is the presence record."""
        return f"{self._prefix}.own.{self._digest('server', server)}"

    def presence(self, server: str) -> str:
        """A browser of this server came, is away, or is gone."""
        return f"{self._prefix}.up.{self._digest('server', server)}"

    def _digest(self, kind: str, text: str) -> str:
        mac = hmac.digest(self._key, f"{kind}\0{text}".encode(), "sha256")
        return base64.b32encode(mac).decode().lower()[:DIGEST_LENGTH]
