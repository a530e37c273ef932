"""What can go wrong on the wire. Not the errors that callers see: those belong to the relay and to the MCP core."""

from __future__ import annotations


class WireError(Exception):
    """Root of everything the wire raises."""


class RemoteProtocolError(WireError):
    """The other end sent something that the protocol does not allow; the socket is closed with 4400."""


class TooMuch(RemoteProtocolError):
    """The other end sent more than can be kept. What came of it is lost, so the session ends; closed with 1009."""


class LocalProtocolError(WireError):
    """Our own side used the link in a way that it does not allow: a bug here, not over there."""


class BufferFull(WireError):
    """The replay buffer has no room: nothing was queued, and the caller may be told so."""


class MessageTooLarge(WireError):
    """One message is larger than the link carries: nothing was queued."""


class ServerNameError(WireError, ValueError):
    """A server name outside the grammar, or one that is reserved."""
