"""Exceptions of the wire: protocol errors of either end, full buffers, messages that are too large, invalid names.

They never reach a caller. The errors that callers receive belong to the relay and to the MCP core.
"""

from __future__ import annotations


class WireError(Exception):
    """Base class of all exceptions of the wire."""


class RemoteProtocolError(WireError):
    """The other end violated the protocol; the socket is closed with 4400."""


class TooMuch(RemoteProtocolError):
    """The other end sent more than can be kept. The received part is lost, so the session ends; closed with 1009."""


class LocalProtocolError(WireError):
    """This end used the link in a way that it does not allow: a bug of this program, not of the other end."""


class BufferFull(WireError):
    """The replay buffer has no room. Nothing was queued, so the caller can be sent an error."""


class MessageTooLarge(WireError):
    """One message is larger than the link allows. Nothing was queued."""


class ServerNameError(WireError, ValueError):
    """A server name that is outside the grammar or reserved."""
