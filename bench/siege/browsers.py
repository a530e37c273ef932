"""Attacks with a token to serve: browsers that violate the rules of the link, or of WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from bench.peer import Linked
from bench.siege.clients import behind
from bench.siege.target import Target, crowd, greet
from tabserver.wire.control_messages import RELAY
from tabserver.wire.events import Opened, Received
from tabserver.wire.frames import Kind
from tabserver.wire.limits import LARGEST_PART

Misbehave = Callable[[ClientConnection], Awaitable[None]]


async def names(target: Target, until: float) -> None:
    """Browsers that claim new names all the time."""
    number = 0
    while monotonic() < until:
        number += 1
        name = f"made-up-{number}"
        with contextlib.suppress(OSError, WebSocketException):
            async with target.browser(name) as socket:
                await greet(socket, name)


async def _many(target: Target, until: float, how_many: int, misbehave: Misbehave) -> None:
    """This many browsers, each of which reconnects whenever it is disconnected."""

    async def one(name: str) -> None:
        while monotonic() < until:
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                async with target.browser(name) as socket:
                    await greet(socket, name)
                    await misbehave(socket)
                    async with asyncio.timeout(max(0.0, until - monotonic())):
                        await socket.wait_closed()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(one(f"bomb-{number}") for number in range(how_many)))


def _parts(payloads: list[str], count: int) -> list[str]:
    frames = []
    for index, payload in enumerate(payloads):
        head: dict[str, Any] = {"t": "part", "s": index + 1, "a": 0, "f": 1, "q": index, "n": count}
        head |= {"h": {"t": "msg", "c": "c", "k": "note"}} if index == 0 else {}
        frames.append(json.dumps(head) + "\n" + payload)
    return frames


async def _sent(socket: ClientConnection, frames: list[str]) -> None:
    for frame in frames:
        await socket.send(frame)


async def unfinished(target: Target, until: float) -> None:
    """Messages that arrive in slices and never end."""
    frames = _parts(["x" * LARGEST_PART] * 30, 33)
    await _many(target, until, 32, lambda socket: _sent(socket, frames))


async def wide(target: Target, until: float) -> None:
    """The same, with one character in each slice that makes Python store all of them in four bytes."""
    frames = _parts(["x" * (LARGEST_PART - 1) + "\U0001f980"] * 30, 33)
    await _many(target, until, 32, lambda socket: _sent(socket, frames))


async def half_frames(target: Target, until: float, how_many: int = 300) -> None:
    """WebSocket frames without their last byte."""
    size = 4 * LARGEST_PART
    head = b"\x81\xff" + struct.pack("!Q", size) + bytes(4)

    async def most_of_one(socket: ClientConnection) -> None:
        socket.transport.write(head + bytes(size - 1))

    await _many(target, until, how_many, most_of_one)


async def many_half_frames(target: Target, until: float) -> None:
    """The same from more browsers than the relay has connections."""
    await half_frames(target, until, 1_100)


async def tiny_fragments(target: Target, until: float) -> None:
    """A WebSocket message in fragments of one byte, or of none."""
    crumb, nothing = b"\x00\x81" + bytes(4) + b"x", b"\x00\x80" + bytes(4)

    async def pour(socket: ClientConnection) -> None:
        transport = socket.transport
        transport.write(b"\x01\x81" + bytes(4) + b"x")
        while monotonic() < until and not transport.is_closing():
            if not transport.get_write_buffer_size():
                transport.write(crumb * 5_000 + nothing * 20_000)
            await asyncio.sleep(0.01)

    await _many(target, until, 16, pour)


async def values(target: Target, until: float) -> None:
    """Messages of objects that need much more memory than their text."""
    text = '{"jsonrpc":"2.0","method":"x","params":[' + ",".join(['{"a":1}'] * 1_950_000) + "]}"
    step = LARGEST_PART
    slices = [text[at : at + step] for at in range(0, len(text), step)]
    frames = _parts(slices, len(slices))
    await _many(target, until, 4, lambda socket: _sent(socket, frames))


class ChangingTools(Linked):
    """Lists 5,000 tools, different ones each time, and notifies of changes all the time."""

    def __init__(self, server: str) -> None:
        super().__init__(server, "poison")
        self._round = 0
        self._channel: str | None = None

    def _drain(self, now: float) -> list[str]:
        events = self.link.events()
        opened = (event for event in events if isinstance(event, Opened) and event.caller.principal == RELAY)
        self._channel = next((event.channel for event in opened), self._channel)
        for event in events:
            if isinstance(event, Received) and event.kind is Kind.REQ:
                self.link.send(event.channel, Kind.RES, self._answer(event), now, id=event.id)
        if self._channel is not None and self.link.is_up and not self.link.unacknowledged:
            note = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
            self.link.send(self._channel, Kind.NOTE, note, now)
        return [header if payload is None else f"{header}\n{payload}" for header, payload in self.link.frames()]

    def due(self) -> float | None:
        due, soon = super().due(), asyncio.get_running_loop().time() + 0.02
        return soon if due is None else min(due, soon)

    def _answer(self, event: Received[str]) -> str:
        if '"tools/list"' not in event.payload:
            return super()._answer(event)
        self._round += 1
        deep: dict[str, Any] = {"type": "object"}
        for _ in range(200):
            deep = {"type": "object", "properties": {"a": deep}}
        kinds = ({"type": "object"}, deep)
        tools = [
            {
                "name": f"t{self._round}-{number}" + ("\u202e\x1b[2J" if number % 7 == 0 else ""),
                "description": "d" * (9_000 if number % 10 == 0 else 500),
                "inputSchema": kinds[number % 20 == 0],
            }
            for number in range(5_000)
        ]
        id = json.loads(event.payload)["id"]
        return json.dumps({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})


async def changing_lists(target: Target, until: float) -> None:
    sockets = [await behind(target, ChangingTools(name), name) for name in (f"poison-{number}" for number in range(8))]
    await asyncio.sleep(max(0.0, until - monotonic()))
    for socket in sockets:
        socket.cut()


class Listing(ChangingTools):
    """Lists this instead of tools, and notifies of changes all the time."""

    def __init__(self, server: str, tools: str) -> None:
        super().__init__(server)
        self._tools = tools

    def _answer(self, event: Received[str]) -> str:
        if '"tools/list"' not in event.payload:
            return super()._answer(event)
        return f'{{"jsonrpc":"2.0","id":{json.loads(event.payload)["id"]},"result":{{"tools":{self._tools}}}}}'


async def _lists(target: Target, until: float, tools: str) -> None:
    made = [(f"list-{number}", Listing(f"list-{number}", tools)) for number in range(4)]
    sockets = [await behind(target, browser, name) for name, browser in made]
    await asyncio.sleep(max(0.0, until - monotonic()))
    for socket in sockets:
        socket.cut()


async def numbers(target: Target, until: float) -> None:
    """Lists of numbers, which are not tools."""
    await _lists(target, until, "[" + "1," * 1_900_000 + "1]")


async def most_values(target: Target, until: float) -> None:
    """Lists that are just small enough to be parsed, with a different key for each value."""
    await _lists(target, until, "[" + ",".join(f'{{"{number:x}":1}}' for number in range(45_000)) + "]")


async def unread_sockets(target: Target, until: float) -> None:
    """Browsers that never read, and calls to them."""

    async def never_read(socket: ClientConnection) -> None:
        socket.transport.pause_reading()

    async def call() -> None:
        requests: Iterable[bytes] = [target.call({"text": "x" * 3_000_000}, f"bomb-{number}") for number in range(8)]
        while monotonic() < until:
            async with contextlib.AsyncExitStack() as stack:
                for request in requests:
                    await stack.enter_async_context(crowd(target, 20, request))
                await asyncio.sleep(min(2.0, max(0.0, until - monotonic())))

    await asyncio.gather(_many(target, until, 8, never_read), call())
