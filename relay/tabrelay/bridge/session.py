"""Client session of the handshake era: session id, version, and what is needed to open a new session.

Servers lose sessions when they restart or clean up. The client must not notice, so the bridge keeps the client's
`initialize` and the requests to repeat: the log level and resource subscriptions. Pure; `forwarder` opens the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bridge.messages import BridgeMessage, MessageKind
from tabserver.wire import methods

MAX_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """The session in which a message was sent; the current one may be newer."""

    id: str | None
    version: str | None
    number: int


class ClientSession:
    def __init__(self) -> None:
        self.opening: BridgeMessage | None = None
        self.is_lost = False
        """The server has lost the session, and the client does not know that."""
        self._id: str | None = None
        self._version: str | None = None
        self._number = 0
        self._kept: dict[str, BridgeMessage] = {}

    def snapshot(self) -> SessionSnapshot:
        return SessionSnapshot(self._id, self._version, self._number)

    def is_current(self, snapshot: SessionSnapshot) -> bool:
        return snapshot.number == self._number

    def open(self, message: BridgeMessage) -> None:
        """The client sends `initialize`."""
        self.opening = message
        self._kept.clear()
        self._forget()
        self.is_lost = False

    def received_id(self, snapshot: SessionSnapshot, id: str | None) -> None:
        """A successful answer had this session id. The first one counts."""
        if id and self._id is None and self.is_current(snapshot):
            self._id = id

    def initialized(self, result: Any) -> None:
        """The server's answer to `initialize`."""
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        self._version = version if isinstance(version, str) and version.isascii() and version.isprintable() else None
        self.is_lost = False

    def lose(self, snapshot: SessionSnapshot) -> None:
        """The server does not know the session of the snapshot."""
        if self.is_current(snapshot):
            self._forget()
            self.is_lost = self.opening is not None

    def keep(self, message: BridgeMessage) -> None:
        """Keeps a request that a new session must repeat, after the server has accepted it."""
        if message.kind is not MessageKind.REQUEST or message.is_modern:
            return
        uri = f"resource {message.params.get('uri')}"
        if message.method == methods.LOGGING_SET_LEVEL:
            self._kept["level"] = message
        elif message.method == methods.RESOURCES_SUBSCRIBE and len(self._kept) < MAX_KEPT:
            self._kept[uri] = message
        elif message.method == methods.RESOURCES_UNSUBSCRIBE:
            self._kept.pop(uri, None)

    def kept(self) -> tuple[BridgeMessage, ...]:
        return tuple(self._kept.values())

    def _forget(self) -> None:
        self._id = self._version = None
        self._number += 1
