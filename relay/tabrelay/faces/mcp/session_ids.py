"""Self-contained session ids: signed with a key of the relay, so that a restarted relay accepts sessions it never saw.

An id holds the caller's description and is authenticated with an HMAC over server and principal, which it does not
name: with another server or another token it is rejected like an invented id. Pure but for the key's file. State that
changes during a session is in `session_store`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import zlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tabserver.wire import eras
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

# Characters. Every request carries the id, and proxies reject headers from a few KiB on.
MAX_ID: Final = 1024
PREFIX: Final = "s1."
MAC_BYTES: Final = 16
KNOWN_CAPABILITIES: Final = ("elicitation", "sampling", "roots", "tasks", "extensions", "experimental")


@dataclass(frozen=True, slots=True)
class SealedSession:
    """Contents of a session id."""

    caller: Caller
    issued: float


class SessionIdCodec:
    """Issues and verifies session ids."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(b"tabrelay session\0" + key).digest()

    def issue(self, server: str, caller: Caller, now: float) -> str:
        """An id for a new session: visible ASCII, at most MAX_ID characters, with 128 random bits."""
        nonce = caller.session or new_nonce()
        for client, capabilities in _shorter_forms(caller):
            body = orjson.dumps([caller.version, round(now), nonce, client, capabilities])
            id = PREFIX + _text(self._mac(server, caller.principal, packed := zlib.compress(body, 9)) + packed)
            if len(id) <= MAX_ID:
                return id
        raise AssertionError("the shortest form fits")

    def read(self, id: str, server: str, principal: str) -> SealedSession | None:
        """The contents of a session id; None if it is not ours, or not for this server and principal."""
        if len(id) > MAX_ID or not id.startswith(PREFIX):
            return None
        try:
            text = id.removeprefix(PREFIX)
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        mac, packed = raw[:MAC_BYTES], raw[MAC_BYTES:]
        # A session has exactly one id: another base64 spelling of the same bytes is rejected.
        if PREFIX + _text(raw) != id or not hmac.compare_digest(mac, self._mac(server, principal, packed)):
            return None
        version, issued, nonce, client, capabilities = orjson.loads(zlib.decompress(packed))
        if version not in eras.LEGACY_VERSIONS:
            return None
        caller = Caller(Era.LEGACY, version, principal, client, capabilities, ready=True, session=nonce)
        return SealedSession(caller, float(issued))

    def _mac(self, server: str, principal: str, packed: bytes) -> bytes:
        # defence: a session's server and principal
        bound = hashlib.sha256(f"{server}\0{principal}".encode()).digest()
        return hmac.digest(self._key, bound + packed, "sha256")[:MAC_BYTES]


def new_nonce() -> str:
    """The random part of an id. It also names the session to the browser, where it grants no access."""
    return secrets.token_urlsafe(16)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _shorter_forms(caller: Caller) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """Client and capabilities in full, then in ever shorter forms for clients whose description is too long."""
    given, full = caller.client, caller.capabilities
    short: dict[str, Any] | None = given and {key: str(given.get(key))[:64] for key in ("name", "version")}
    known: dict[str, Any] = {key: full[key] for key in KNOWN_CAPABILITIES if key in full}
    flat: dict[str, Any] = {
        key: {name: {} for name in value} for key, value in known.items() if isinstance(value, dict)
    }
    bare: dict[str, Any] = {key: {} for key in known}
    return [(given, full), (short, full), (short, known), (short, flat), (short, bare), (None, bare)]
