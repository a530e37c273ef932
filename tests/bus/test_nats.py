"""Connecting to NATS: TLS, and credentials in a file."""

from __future__ import annotations

import base64
import binascii
import datetime
import ipaddress
import json
import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from tabrelay.bus.nats import NatsAuth, NatsBus
from tabrelay.bus.nats_credentials import NatsCredentials
from tabrelay.config.settings import ConfigError
from tests.support.nats_server import NatsServer
from tests.support.waiting import until


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bus")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


async def test_a_bus_over_tls_is_trusted_if_its_certificate_is(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    config = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    async with NatsServer(tmp_path / "nats", config=config) as bus:
        url = f"tls://127.0.0.1:{bus.port}"
        believer, doubter = NatsBus((url,), NatsAuth(ca=cert), "test"), NatsBus((url,), NatsAuth(), "test")
        for end in (believer, doubter):
            await end.start()
        try:
            await until(lambda: believer.is_up)
            await until(lambda: doubter.problem is not None)
            assert not doubter.is_up
        finally:
            for end in (believer, doubter):
                await end.stop()


# Kinds of NATS keys, by their first character: S, O, A and U.
SEED, OPERATOR, ACCOUNT, USER = 18 << 3, 14 << 3, 0, 20 << 3


class Signer:
    """An operator, account or user of NATS: a key pair, and tokens that it signs."""

    def __init__(self, kind: int) -> None:
        seed = os.urandom(32)
        self._key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        self.seed = _base32(bytes([SEED | kind >> 5, kind << 3 & 0xFF]) + seed)
        self.public = _base32(bytes([kind]) + self._key.public_key().public_bytes_raw())

    def token(self, subject: str, kind: str, **claims: object) -> str:
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {
            "jti": subject,
            "iat": 1_700_000_000,
            "iss": self.public,
            "name": kind,
            "sub": subject,
            "nats": {"type": kind, "version": 2, **claims},
        }
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"


def _base32(body: bytes) -> str:
    """Keys as NATS writes them, with their checksum."""
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode().rstrip("=")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


async def test_a_relay_with_a_credentials_file_is_admitted_and_one_without_is_not(tmp_path: Path) -> None:
    operator, account, user = (Signer(kind) for kind in (OPERATOR, ACCOUNT, USER))
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1}
    config = (
        f"operator: {operator.token(operator.public, 'operator')}\n"
        "resolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {operator.token(account.public, 'account', limits=limits)} }}\n"
    )
    secret = user.seed
    credentials = tmp_path / "relay.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{account.token(user.public, 'user', subs=-1, data=-1, payload=-1)}\n"
        f"------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{secret}\n------END USER NKEY SEED------\n"
    )
    async with NatsServer(tmp_path / "nats", config=config) as bus:
        member, stranger = (
            NatsBus((bus.url,), NatsAuth(credentials=credentials), "test"),
            NatsBus((bus.url,), NatsAuth(), "test"),
        )
        for end in (member, stranger):
            await end.start()
        try:
            await until(lambda: member.is_up)
            await until(lambda: stranger.problem is not None)
            assert not stranger.is_up
        finally:
            for end in (member, stranger):
                await end.stop()


JWT = "-----BEGIN NATS USER JWT-----\nabc.def.ghi\n------END NATS USER JWT------\n"


def seed_block(seed: str) -> str:
    return f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no credentials file"),
        (JWT, "no credentials file"),
        (seed_block(Signer(USER).seed), "no credentials file"),
        ("-----BEGIN NATS USER JWT-----", "no credentials file"),
        (JWT + seed_block("not base32!"), "damaged"),
        (JWT + seed_block(Signer(USER).seed[:-1]), "damaged"),
        (JWT + seed_block(Signer(USER).public), "damaged"),
        ("\xff", "can't be read"),
    ],
    ids=["empty", "no-seed", "no-jwt", "cut-off", "not-base32", "short", "a-public-key", "not-text"],
)
def test_an_unusable_credentials_file_is_reported(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "relay.creds"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=what) as said:
        NatsCredentials(file)
    assert str(file) in str(said.value)
    assert "BEGIN" not in str(said.value)
