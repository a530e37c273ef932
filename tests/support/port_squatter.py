"""A program that takes the relay's port while the relay is down, and records every byte that it is sent.

`python -P tests/support/port_squatter.py PORT FILE MODE [TARGET_PORT]` in its own process. It answers everything as if
it were the relay; MODE says how it answers a challenge:

- `forge`: with a signature that it made up; `unknown`: that it does not know the key; `old`: as a relay of an earlier
  version does; `silent`: not at all
- `forward`: with the answer of a real relay at TARGET_PORT, under that relay's own name; `mirror`: the same, under the
  name that the client dialled
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MODES = ("forge", "unknown", "old", "silent")


class Squatter:
    def __init__(self, record: Path, mode: str, target: int) -> None:
        self._record = record.open("ab", buffering=0)
        self._mode = mode
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self._record.write(head)
                fields = self._fields(head)
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                self._record.write(body)
                if "sec-websocket-key" in fields:
                    await self._websocket(fields, reader, writer)
                    return
                answer = await self._answer(head.split(b" ")[1].decode(), body)
                if answer is not None:
                    writer.write(self._packed(*answer, fields.get("origin", "*")))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _fields(self, head: bytes) -> dict[str, str]:
        rows = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:] if line)
        return {name.lower(): value.strip() for name, _, value in rows}

    async def _answer(self, path: str, body: bytes) -> tuple[int, bytes] | None:
        if path == "/-/healthz":
            return 200, json.dumps({"status": "ok", "build": "", "version": "9"}).encode()
        if path != "/-/prove":
            return 200, b'{"jsonrpc":"2.0","id":1,"result":{},"servers":[],"asking":[],"paired":[]}'
        if self._mode == "silent":
            return None
        if self._mode == "unknown":
            return 403, b'{"error":"unknown_key","message":"Run: evil"}'
        if self._mode == "old":
            return 401, b'{"error":"unauthorized","message":"Run: evil"}'
        if self._mode in ("forward", "mirror"):
            return await self._forward(body)
        made_up = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode().rstrip("=")
        return 200, json.dumps({"nonce": made_up, "signature": made_up}).encode()

    async def _forward(self, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body)
        if self._mode == "forward":
            asked["authority"] = f"127.0.0.1:{self._target}"
        body = json.dumps(asked).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        writer.write(
            f"POST /-/prove HTTP/1.1\r\nHost: 127.0.0.1:{self._target}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + body
        )
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split(b" ")[1]), answer

    async def _websocket(
        self, fields: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        accept = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + GUID).digest()).decode()
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: tabrelay.v1\r\n\r\n".encode()
        )
        while data := await reader.read(65536):
            self._record.write(data)

    def _packed(self, status: int, body: bytes, origin: str) -> bytes:
        return (
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Allow-Headers: *, authorization\r\n"
            "Access-Control-Allow-Private-Network: true\r\n\r\n"
        ).encode() + body


class RunningSquatter:
    """The recorded traffic of a squatter process."""

    def __init__(self, record: Path) -> None:
        self._record = record

    @property
    def got(self) -> bytes:
        return self._record.read_bytes() if self._record.exists() else b""

    async def until_asked(self, wanted: bytes = b"/-/prove", times: int = 1) -> bytes:
        from tests.support.waiting import until  # does not count the check whether the process is up

        await until(lambda: self.got.count(wanted) >= times, 60)
        return self.got

    def shown(self) -> list[str]:
        """Everything that was presented as a credential: headers and subprotocols, as tokens."""
        found = []
        for line in self.got.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "authorization":
                found.append(value.strip().removeprefix("Bearer "))
            if name.lower() == "sec-websocket-protocol":
                for entry in value.split(","):
                    if entry.strip().startswith("bearer."):
                        text = entry.strip().removeprefix("bearer.")
                        found.append(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        return found

    def assert_no_secret(self, *tokens: str) -> None:
        got = self.got
        for token in tokens:
            key = hashlib.sha256(token.encode()).digest()
            for secret in (token.encode(), key.hex().encode(), key):
                for text in (secret, base64.b64encode(secret), base64.urlsafe_b64encode(secret)):
                    assert text.rstrip(b"=") not in got
        assert not [one for one in self.shown() if not one.startswith("trp_")]


@asynccontextmanager
async def squatter(port: int, folder: Path, mode: str = "forge", target: int = 0) -> AsyncIterator[RunningSquatter]:
    record = folder / f"squatter-{port}-{mode}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", __file__, str(port), str(record), mode, str(target), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(90):
            assert await process.stdout.readline() == b"ready\n"
        yield RunningSquatter(record)
    finally:
        process.kill()
        await process.wait()


async def main() -> None:
    port, record, mode, target = sys.argv[1:]
    squat = Squatter(Path(record), mode, int(target))
    async with asyncio.timeout(90):
        while True:
            try:
                server = await asyncio.start_server(squat.serve, "127.0.0.1", int(port), reuse_address=True)
                break
            except OSError:  # the relay is about to release it
                await asyncio.sleep(0.01)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
