"""NATS `.creds` file: a user JWT and the seed of the key that signs the server's nonce.

Uses `cryptography`, which also verifies access tokens: the package that nats-py needs for this has no wheel, and
nats-py never stops reading a file without a JWT. Does not connect.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final

from tabrelay.config.settings import ConfigError

# A seed is base32: five bits each for "S" and for the kind of key, then 32 bytes, then a checksum.
SEED_MARK: Final = 18 << 3
MARK_BYTES: Final = 2
SEED_BYTES: Final = 32
CHECKSUM_BYTES: Final = 2


class NatsCredentials:
    """Contents of one file at the time it was read."""

    def __init__(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The bus's credentials in {file} can't be read: {error}") from None
        jwt, seed = _block(text, "NATS USER JWT"), _block(text, "USER NKEY SEED")
        if jwt is None or seed is None:
            raise ConfigError(
                f"{file} is no credentials file of NATS: it must have a NATS USER JWT and a USER NKEY SEED, as "
                "`nsc generate creds` writes them."
            )
        self._jwt = jwt
        self._seed = _decoded(seed)
        if self._seed is None:
            raise ConfigError(f"The seed in {file} is damaged: write the file anew with `nsc generate creds`.")

    def jwt(self) -> bytes:
        return self._jwt.encode()

    def sign(self, nonce: str) -> bytes:
        """Signature of the server's nonce, in the form that nats-py expects."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        assert self._seed is not None
        return base64.b64encode(Ed25519PrivateKey.from_private_bytes(self._seed).sign(nonce.encode()))


def _block(text: str, title: str) -> str | None:
    """The line below `-----BEGIN title-----`."""
    lines = iter(text.splitlines())
    for line in lines:
        if f"BEGIN {title}" in line:
            return next(lines, "").strip() or None
    return None


def _decoded(seed: str) -> bytes | None:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        return None
    body, checksum = raw[:-CHECKSUM_BYTES], raw[-CHECKSUM_BYTES:]
    if len(body) != MARK_BYTES + SEED_BYTES or body[0] & 0xF8 != SEED_MARK:
        return None
    # CRC-16/XMODEM, low byte first.
    return body[MARK_BYTES:] if binascii.crc_hqx(body, 0).to_bytes(2, "little") == checksum else None
