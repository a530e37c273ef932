"""A reverse proxy with real TLS: decrypts, adds the headers about the client, and forwards everything.

One request for each connection, as a proxy without keep-alive; a WebSocket or an event stream has no time limit.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tabrelay test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "cert.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
    return public, private


class Terminator:
    """Start it with `async with`; then set the target. The target comes later because the relay's address is made of
    this one's."""

    def __init__(self, folder: Path) -> None:
        self._certificate, key = certificate(folder)
        self._server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_side.load_cert_chain(self._certificate, key)
        self._open: set[asyncio.Task[None]] = set()
        self.target = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """TLS context of a client that trusts the certificate."""
        return ssl.create_default_context(cafile=str(self._certificate))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._server_side)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_writer: asyncio.StreamWriter | None = None
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            added = b"X-Forwarded-Proto: https\r\nX-Forwarded-For: 203.0.113.9\r\n"
            if b"\r\nupgrade:" not in head.lower():
                added += b"Connection: close\r\n"
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
            inner_writer.write(first + b"\r\n" + added + rest)
            to, back = (asyncio.create_task(_copy(*pair)) for pair in ((reader, inner_writer), (inner_reader, writer)))
            await asyncio.wait({to, back}, return_when=asyncio.FIRST_COMPLETED)
            to.cancel()
            await asyncio.wait({back}, timeout=1)
            back.cancel()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side has closed, or the test is over
        finally:
            self._open.discard(task)
            for each in (inner_writer, writer):
                if each is not None:
                    each.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
