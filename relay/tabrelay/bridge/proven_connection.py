"""HTTP connections on which the relay has proved that it has the token's key.

The connection pool gets a connection only after the challenge was answered on it. A program that took the relay's port
receives the challenge and nothing else: no token, no client proof, no message. Requests carry a client proof instead of
the token; it is renewed before it expires. The protocol is in `tabrelay.calls.proof`; this module adapts it to
httpcore2.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

import httpcore2
import httpx2
from httpcore2 import AsyncNetworkStream

from tabrelay.calls.proof import ANSWER_S, LIFE_S, PREFIX, Challenge, ClientProof, Unproven, authority_of

RENEW_S: Final = LIFE_S / 2
READ_BYTES: Final = 4096


class ProvenConnections:
    """Opens connections for one HTTP client and caches its latest client proof."""

    def __init__(self, key: bytes, limits: httpx2.Limits | None = None) -> None:
        """`key`: derived from the token; the relay has the same."""
        given = limits or httpx2.Limits()
        self._key = key
        self._network = httpcore2.AnyIOBackend()
        self._proofs: dict[str, tuple[ClientProof, float]] = {}  # by authority
        self._spare: AsyncNetworkStream | None = None  # the connection on which the first proof was obtained
        self._lock = asyncio.Lock()
        self._has_connected = False
        self.transport = httpx2.AsyncHTTPTransport(verify=False)
        self.transport._pool = httpcore2.AsyncConnectionPool(
            max_connections=given.max_connections,
            max_keepalive_connections=given.max_keepalive_connections,
            keepalive_expiry=given.keepalive_expiry,
            network_backend=_Backend(self),  # type: ignore[arg-type]
        )

    async def authorization(self, host: str, port: int) -> str:
        """The Authorization header with a client proof. Raises Unproven, or httpx2's errors."""
        authority = authority_of(host, port)
        async with self._lock:
            known = self._proofs.get(authority)
            if known is None or time.monotonic() - known[1] > RENEW_S:
                try:
                    stream = await self._connect(host, port, ANSWER_S)
                except httpcore2.ConnectTimeout as error:
                    raise httpx2.ConnectTimeout(str(error)) from error
                except httpcore2.NetworkError as error:
                    raise httpx2.ConnectError(str(error)) from error
                if self._has_connected or self._spare is not None:
                    await stream.aclose()
                else:
                    self._spare = stream
        return _bearer(self._proofs[authority][0])

    def forget(self, authorization: str | None) -> bool:
        """The relay refused this header. True: it is a proof, and the next one will differ.

        A restarted relay accepts no earlier proof. A newer proof may already exist, from a new connection on which the
        relay proved itself."""
        self._proofs = {
            authority: (proof, since)
            for authority, (proof, since) in self._proofs.items()
            if authorization != _bearer(proof)
        }
        return authorization is not None and authorization.startswith(f"Bearer {PREFIX}")

    async def open(self, host: str, port: int, timeout: float | None, **more: Any) -> AsyncNetworkStream:
        """Called by the pool: a connection on which the relay has proved itself."""
        self._has_connected = True
        spare, self._spare = self._spare, None
        if spare is not None:
            if not spare.get_extra_info("is_readable"):  # otherwise the relay has closed it
                return spare
            await spare.aclose()
        return await self._connect(host, port, timeout, **more)

    async def close(self) -> None:
        if self._spare is not None:
            await self._spare.aclose()
            self._spare = None

    async def _connect(self, host: str, port: int, timeout: float | None, **more: Any) -> AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, timeout=timeout, **more)
        authority = authority_of(host, port)
        challenge = Challenge(self._key, authority)
        try:
            async with asyncio.timeout(ANSWER_S):
                proof = await _prove(stream, challenge)
        except TimeoutError:
            await stream.aclose()
            raise httpcore2.ConnectTimeout("the relay did not answer the challenge") from None
        except BaseException:
            with contextlib.suppress(Exception):
                await stream.aclose()
            raise
        self._proofs = {authority: (proof, time.monotonic())}
        return stream


def _bearer(proof: ClientProof) -> str:
    return f"Bearer {proof.text()}"


async def _prove(stream: AsyncNetworkStream, challenge: Challenge) -> ClientProof:
    reader = challenge.reader()
    try:
        await stream.write(challenge.request())
        while (answer := reader.feed(await stream.read(READ_BYTES))) is None:
            pass
    except (httpcore2.ReadError, httpcore2.WriteError, ConnectionError) as error:
        # The relay ends at this moment: treated as not running.
        raise httpcore2.ConnectError(str(error)) from error
    # defence: another program on the port: the bridge's connections are proved
    return challenge.verify(*answer)


class _Backend:
    """The part of httpcore2's AsyncNetworkBackend that a TCP client uses."""

    def __init__(self, connections: ProvenConnections) -> None:
        self._connections = connections

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: Any = None, socket_options: Any = None
    ) -> AsyncNetworkStream:
        return await self._connections.open(
            host, port, timeout, local_address=local_address, socket_options=socket_options
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


__all__ = ["ProvenConnections", "Unproven"]
