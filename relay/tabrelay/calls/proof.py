"""Mutual challenge-response authentication between the relay and its clients (HMAC-SHA-256), so that no token is sent.

Relay and client share a key, SHA-256 of the token. The client sends a nonce and the authority that it dialled; the
relay signs both together with a nonce of its own. A client that has verified this signature shows a *client proof*
wherever a token would be shown. A proof is accepted by the relay that issued the nonce, for a short time, and by no
other: a program that receives one after the relay has ended can do nothing with it. P1 to P6 in docs/reference/link.md.

The relay keeps nothing per challenge: its nonce carries a time and a seal. This module reads no file and no socket, and
does not decide what a principal may do.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ROUTE: Final = "/-/prove"
PREFIX: Final = "trp_"  # of a client proof; the log redaction looks for it
LIFE_S: Final = 60.0  # of a client proof that was not used to open a connection
SKEW_S: Final = 5.0  # between the clocks of relays that share their key
MAX_ANSWER: Final = 1024  # bytes of the relay's answer
MAX_HEAD: Final = 8192  # and of its header
ANSWER_S: Final = 10.0  # until the whole answer has arrived
NONCE_BYTES: Final = 16
_LONGEST: Final = 512  # characters of a client proof
_STAMP_BYTES: Final = 8
_SEAL_BYTES: Final = 16
_HEAD: Final = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d{1,9}) *(?:\r\n|$)", re.IGNORECASE)
UNKNOWN_KEY: Final = "unknown_key"
WRONG_AUTHORITY: Final = "wrong_authority"


class Unproven(Exception):
    """The program at the other end has not proved that it is the user's relay; the text says what to do."""


def key_of(token: str) -> bytes:
    # P1: the relay stores nothing else of a token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def serve_key(key: bytes) -> bytes:
    """P1: the key that a browser's worker holds. It opens the scope `serve` only, whatever the token is for."""
    return _mac(key, "serve key")


def call_key(key: bytes) -> bytes:
    """P1: the key with which a page of the relay calls the tools that its own origin serves, and nothing else."""
    return _mac(key, "call key")


def key_id(key: bytes) -> str:
    """Public identifier of a key, which reveals nothing about it."""
    return _encode(hashlib.sha256(b"tabrelay key id\n" + key).digest()[:16])


def is_relay_token(token: str) -> bool:
    """By its shape. The relay's token may have another one if a user wrote the file."""
    return token.startswith("tr_")


def authority_of(host: str, port: int, default_port: int = 80) -> str:
    """As browsers send it: without the default port, IPv6 in brackets."""
    name = f"[{host.strip('[]')}]" if ":" in host else host
    return (name if port == default_port else f"{name}:{port}").lower()


def is_access_token(token: str) -> bool:
    """A JWT of an authorization server: the relay does not know it in advance, so nothing can be proved with it."""
    return token.startswith("eyJ") and token.count(".") == 2


@dataclass(frozen=True, slots=True)
class ProofExchange:
    """What both sides sign."""

    authority: str
    client_nonce: str
    relay_nonce: str

    def relay_signature(self, key: bytes) -> str:
        return self._signed(key, "relay")

    def client_signature(self, key: bytes) -> str:
        return self._signed(key, "client")

    def socket_signature(self, key: bytes) -> str:
        """P6: the first message of a WebSocket that was opened with a client proof."""
        return self._signed(key, "socket")

    def _signed(self, key: bytes, side: str) -> str:
        # defence: another program on the port: the address is signed
        return _encode(_mac(key, side, self.authority, self.client_nonce, self.relay_nonce))


# -- client ------------------------------------------------------------------------------------------------------------


class Challenge:
    """One challenge of a client. `authority`: host and port as dialled, as an HTTP Host header has them."""

    def __init__(self, key: bytes, authority: str) -> None:
        self._key = key
        self._authority = authority.lower()
        self._nonce = _encode(secrets.token_bytes(NONCE_BYTES))

    def body(self) -> bytes:
        # P2: the challenge.
        asked = {"key": key_id(self._key), "nonce": self._nonce, "authority": self._authority}
        return json.dumps(asked).encode()

    def request(self) -> bytes:
        """The whole HTTP request, for a connection that stays open."""
        body = self.body()
        head = f"POST {ROUTE} HTTP/1.1\r\nHost: {self._authority}\r\nContent-Length: {len(body)}\r\n"
        return f"{head}Content-Type: application/json\r\n\r\n".encode("latin-1") + body

    def reader(self) -> AnswerReader:
        return AnswerReader(self._authority)

    def verify(self, status: int, body: bytes) -> ClientProof:
        """Raises Unproven. No text of an unproven program is shown to the user."""
        try:
            answer = json.loads(body)
            answer = answer if isinstance(answer, dict) else {}
        except (ValueError, RecursionError):
            answer = {}
        if status != 200:
            raise Unproven(refusal(self._authority, status, answer.get("error")))
        nonce, signature = answer.get("nonce"), answer.get("signature")
        is_formed = _is_encoded(nonce) and _is_encoded(signature)
        exchange = ProofExchange(self._authority, self._nonce, str(nonce) if is_formed else "")
        # defence: another program on the port: the relay's signature is checked
        if not is_formed or not hmac.compare_digest(exchange.relay_signature(self._key), str(signature)):
            raise Unproven(f"The program at {self._authority} is not your relay. {STOP_IT}")
        return ClientProof(exchange, self._key)


class AnswerReader:
    """Reads one HTTP answer to a challenge from the bytes of a connection, within fixed bounds. No I/O."""

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._data = b""

    def feed(self, data: bytes) -> tuple[int, bytes] | None:
        """Status and body once they are complete. `data` empty: the connection has ended.

        Raises Unproven, or ConnectionError if there was no answer at all."""
        if not data and not self._data:
            raise ConnectionResetError("the connection was closed without an answer")
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        found = _HEAD.match(head) if end else None
        length = _LENGTH.search(head) if found else None
        if not data or len(self._data) > MAX_ANSWER + MAX_HEAD or (end and length is None):
            raise Unproven(refusal(self._authority, int(found[1]) if found else 0, None))
        if not found or not length or len(body) < int(length[1]):
            return None
        if len(body) > int(length[1]):
            raise Unproven(refusal(self._authority, int(found[1]), None))
        return int(found[1]), body


STOP_IT: Final = "Find out which program has the port and stop it; then start the relay. The token was not sent."


def refusal(authority: str, status: int, error: object) -> str:
    """The reason why there is no signature, as far as an unproven program can be trusted."""
    if error == UNKNOWN_KEY:
        return (
            f"The program at {authority} does not know this token: it was revoked, the relay was started with another "
            "--home, or another program has the port. The token was not sent."
        )
    if error == WRONG_AUTHORITY:
        return (
            f"The relay does not hold the address {authority}. Use http://127.0.0.1 and its port, or start it with "
            f"--allow-host {authority}. The token was not sent."
        )
    answered = f" (it answered {status})" if status else ""
    return (
        f"The program at {authority} is not your relay, or one of an earlier version{answered}. Update and restart the "
        "relay, or stop the other program. The token was not sent."
    )


@dataclass(frozen=True, slots=True)
class ClientProof:
    exchange: ProofExchange
    key: bytes

    def text(self) -> str:
        """Sent in place of the token."""
        # P4: the client proof.
        exchange = self.exchange
        parts = (key_id(self.key), _encode(exchange.authority.encode()), exchange.client_nonce, exchange.relay_nonce)
        return PREFIX + ".".join((*parts, exchange.client_signature(self.key)))

    def socket_signature(self) -> str:
        return self.exchange.socket_signature(self.key)


# -- relay -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownProof:
    """A client proof as received, with a seal of this relay. Its signature is not checked yet."""

    key_id: str
    exchange: ProofExchange
    signature: str

    def is_signed_by(self, key: bytes) -> bool:
        return hmac.compare_digest(self.exchange.client_signature(key), self.signature)


class ProofIssuer:
    """Answers challenges and recognises the resulting proofs. Relays with one `secret` accept each other's proofs."""

    def __init__(self, secret: bytes, wall: Callable[[], float], life_s: float = LIFE_S) -> None:
        self._secret = secret
        self._wall = wall
        self._life_s = life_s

    def answer(self, key: bytes, authority: str, client_nonce: str) -> dict[str, str]:
        # P3: the signature. The nonce contains the time and a seal, so nothing is stored for it.
        head = int(self._wall() * 1000).to_bytes(_STAMP_BYTES, "big") + secrets.token_bytes(NONCE_BYTES)
        nonce = _encode(head + self._seal(head, key_id(key), authority, client_nonce))
        return {"nonce": nonce, "signature": ProofExchange(authority, client_nonce, nonce).relay_signature(key)}

    def read(self, text: str) -> ShownProof | None:
        """None if the proof is not of this relay, or too old."""
        parts = text.removeprefix(PREFIX).split(".")
        if len(text) > _LONGEST or not text.isascii() or len(parts) != 5:
            return None
        id, authority_text, client_nonce, relay_nonce, signature = parts
        try:
            nonce, authority = _decode(relay_nonce), _decode(authority_text).decode("ascii")
        except ValueError:
            return None
        head, seal = nonce[: _STAMP_BYTES + NONCE_BYTES], nonce[_STAMP_BYTES + NONCE_BYTES :]
        if not hmac.compare_digest(seal, self._seal(head, id, authority, client_nonce)):
            return None
        age_s = self._wall() - int.from_bytes(head[:_STAMP_BYTES], "big") / 1000
        # P5: a proof is valid for 60 s at the relay that issued its nonce.
        # defence: another program on the port: a proof has an end
        if not -SKEW_S <= age_s <= self._life_s:
            return None
        return ShownProof(id, ProofExchange(authority, client_nonce, relay_nonce), signature)

    def _seal(self, head: bytes, id: str, authority: str, client_nonce: str) -> bytes:
        return _mac(self._secret, "seal", head.hex(), id, authority, client_nonce)[:_SEAL_BYTES]


def is_nonce(text: object) -> bool:
    """Is this what a client sends as its nonce?"""
    return _is_encoded(text) and len(_decode(str(text))) == NONCE_BYTES


def _is_encoded(text: object) -> bool:
    try:
        return isinstance(text, str) and len(text) <= _LONGEST and bool(_decode(text))
    except ValueError:
        return False


def _mac(key: bytes, *parts: str) -> bytes:
    # No part has a newline: nonces and ids are base64url, an authority is one of the relay's list.
    return hmac.digest(key, "\n".join(("tabrelay 1", *parts)).encode(), "sha256")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
