"""Texts that bypass ASGI: any input, in any pieces, is received as with ASGI alone, and in the same order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from tabrelay.peers.browsers.asgi_bypass import direct_channel
from tabrelay.server.uvicorn_adapter.websocket_protocol import FEED_CHUNK, WebSocketProtocol
from tests.support.waiting import until

KEY = "MDEyMzQ1Njc4OWFiY2RlZg=="
REQUEST = (
    "GET /notes HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: {KEY}\r\n\r\n"
).encode()
TEXT, BINARY, CONT, CLOSE, PING = 1, 2, 0, 8, 9
MOST = 100_000


def frame(opcode: int, data: bytes, *, is_last: bool = True, mask: bytes = b"\x11\x22\x33\x44") -> bytes:
    """As a browser writes it."""
    size = len(data)
    first = (0x80 if is_last else 0) | opcode
    if size < 126:
        head = bytes([first, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([first, 0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + size.to_bytes(8, "big")
    key = (mask * (size // 4 + 1))[:size]  # as numbers, because a loop over the bytes takes most of the test's time
    return head + mask + (int.from_bytes(data) ^ int.from_bytes(key)).to_bytes(size)


class Transport(asyncio.Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class BypassedSocket:
    """One WebSocket, and an application that records what it receives, directly (if allowed) or by ASGI."""

    def __init__(self, *, directly: bool, kind: type[WebSocketProtocol] = WebSocketProtocol) -> None:
        self._directly = directly
        self._kind = kind
        self.received: list[tuple[str, object]] = []
        self.straight = 0
        self.is_accepted = False
        self.send: Any = None
        self.channel: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.send, self.channel = send, direct_channel(scope)
        if self._directly:
            self.channel.start_direct(self._receive_directly)
        self.is_accepted = True
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.received.append(("end", message.get("code")))
                return
            kind = "text" if message.get("text") is not None else "bytes"
            self.received.append((kind, message[kind]))

    def _receive_directly(self, text: str) -> None:
        self.straight += 1
        self.received.append(("text", text))

    async def __aenter__(self) -> BypassedSocket:
        config = uvicorn.Config(
            self,
            ws=self._kind,
            lifespan="off",
            log_config=None,
            ws_max_size=MOST,
            ws_per_message_deflate=False,
        )
        config.load()
        self.protocol = self._kind(config, ServerState(), {})
        self.transport = Transport()
        self.protocol.connection_made(self.transport)
        self.protocol.data_received(REQUEST)
        await until(lambda: self.is_accepted)
        self.transport.written = b""
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.protocol.connection_lost(None)
        await until(lambda: bool(self.received) and self.received[-1][0] == "end")

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)


async def outcome(
    pieces: list[bytes], *, directly: bool, kind: type[WebSocketProtocol] = WebSocketProtocol
) -> tuple[list[tuple[str, object]], bytes, bool, int]:
    async with BypassedSocket(directly=directly, kind=kind) as stage:
        for piece in pieces:
            stage.protocol.data_received(piece)
            await stage.settle()
        received, written, is_closed = list(stage.received), stage.transport.written, stage.transport.is_closed
    return received, written, is_closed, stage.straight


SMALL = st.text(max_size=40).map(lambda text: [frame(TEXT, text.encode())])
FRAMES = st.one_of(
    SMALL,
    SMALL,
    st.sampled_from([125, 126, 127, 4_000, FEED_CHUNK, FEED_CHUNK + 1, 70_000]).map(
        lambda size: [frame(TEXT, b"x" * size)]
    ),
    st.binary(max_size=60).map(lambda data: [frame(BINARY, data)]),
    st.binary(max_size=20).map(lambda data: [frame(PING, data)]),
    st.tuples(st.text(max_size=9), st.text(max_size=9)).map(
        lambda two: [frame(TEXT, two[0].encode(), is_last=False), frame(PING, b""), frame(CONT, two[1].encode())]
    ),
    st.just([frame(TEXT, b"a", is_last=False), frame(TEXT, b"b")]),  # a new message within another
    st.just([b"\x81\x03abc"]),  # without a mask
    st.just([b"\xc1\x81" + bytes(4) + b"x"]),  # a bit without a negotiated meaning
    st.just([frame(CLOSE, b"\x03\xe8")]),
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames, cut anywhere. The last may be a text that is not UTF-8: frames after it are received or not."""
    data = b"".join(piece for pieces in draw(st.lists(FRAMES, max_size=8)) for piece in pieces)
    data += frame(TEXT, draw(st.binary(max_size=20)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@settings(max_examples=300, deadline=None)
@given(streams())
@example([frame(TEXT, b"one") + frame(TEXT, b"two") + frame(PING, b"p") + frame(TEXT, b"three")])
@example([bytes([byte]) for byte in frame(TEXT, "ä".encode() * 100)])
@example([frame(BINARY, b"first") + frame(TEXT, b"second")])
def test_the_same_is_received_and_sent_with_and_without_it(pieces: list[bytes]) -> None:
    async def both() -> None:
        with_it, without = await outcome(pieces, directly=True), await outcome(pieces, directly=False)
        assert with_it[:3] == without[:3]

    asyncio.run(both())


class ByLibrary(WebSocketProtocol):
    """Leaves every byte to the websockets library."""

    def data_received(self, data: bytes) -> None:
        self._feed(data)
        self._update_buffered()


def large(first: int, size: int, *, second: int = 0x80, sent: int | None = None) -> bytes:
    """A frame from the bytes of its header, with the longest form of its length; `sent`: the sent part of its
    payload."""
    mask = b"\x11\x22\x33\x44" if second else b""
    return bytes([first, second | 127]) + size.to_bytes(8, "big") + mask + b"x" * (size if sent is None else sent)


SIZES = st.sampled_from([3, FEED_CHUNK, FEED_CHUNK + 1, FEED_CHUNK * 2, 70_000, MOST])
ODD = st.one_of(
    SIZES.map(lambda size: [large(0x81, size)]),
    SIZES.map(lambda size: [large(0x82, size)]),
    SIZES.map(lambda size: [large(0x01, size), frame(PING, b"p"), large(0x80, min(size, MOST - size))]),
    SIZES.map(lambda size: [large(0x01, size), large(0x00, 9), large(0x80, FEED_CHUNK + 9)]),  # perhaps too large
    SIZES.map(lambda size: [frame(TEXT, b"a", is_last=False), large(0x81, size)]),  # a new message within another
    SIZES.map(lambda size: [large(0x80, size)]),  # the end of a message that has not begun
    SIZES.map(lambda size: [large(0xC1, size)]),  # a bit without a negotiated meaning
    SIZES.map(lambda size: [large(0x83, size)]),  # an undefined opcode
    SIZES.map(lambda size: [large(0x89, size)]),  # a ping that is too large
    SIZES.map(lambda size: [large(0x88, size)]),
    SIZES.map(lambda size: [large(0x81, size, second=0)]),  # without a mask
    st.sampled_from([MOST + 1, 1 << 40, (1 << 64) - 1]).map(lambda size: [large(0x81, size, sent=50)]),
    st.sampled_from([MOST + 1, 1 << 63]).map(lambda size: [large(0x82, size, sent=50)]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(ODD, ODD, FRAMES), max_size=5), st.lists(st.integers(0, 300_000), max_size=8), st.booleans())
@example([[large(0x81, MOST + 1, sent=0)]], [], False)
@example([[frame(TEXT, b"\xff" * (FEED_CHUNK + 1))]], [FEED_CHUNK], True)
@example([[large(0x82, FEED_CHUNK + 1), frame(TEXT, b"behind it")]], [9, 14, 15, FEED_CHUNK], True)
@example(
    [[large(0x81, FEED_CHUNK + 1)], [frame(CLOSE, b"\x03\xe8")], [large(0x81, FEED_CHUNK + 1)]], [FEED_CHUNK * 2], True
)
def test_large_frames_are_judged_as_by_the_library_alone(
    groups: list[list[bytes]], cuts: list[int], directly: bool
) -> None:
    frames = [each for group in groups for each in group]
    data = b"".join(frames)
    cuts = sorted(min(cut, len(data)) for cut in cuts)
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    async def both() -> None:
        ours = await outcome(pieces, directly=directly)
        # Frame by frame: the library drops everything that arrives together with a frame that it refuses.
        theirs = await outcome(frames, directly=False, kind=ByLibrary)
        assert ours[:3] == theirs[:3]

    asyncio.run(both())


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (large(0x81, MOST + 1, sent=0), 1009),
        (large(0x82, MOST + 1, sent=0), 1009),
        (large(0x81, (1 << 64) - 1, sent=0), 1009),
        (large(0x83, MOST, sent=0), 1002),
        (large(0x81, MOST, second=0, sent=0), 1002),
    ],
)
async def test_a_wrong_header_is_refused_before_anything_follows_it(header: bytes, code: int) -> None:
    received, written, is_closed, _ = await outcome([header], directly=True)
    assert (received, is_closed) == ([("end", code)], True)
    assert written[2:4] == code.to_bytes(2, "big")


async def test_a_frame_that_is_too_large_is_refused_also_if_all_of_it_is_there() -> None:
    received, _, is_closed, _ = await outcome([large(0x81, MOST + 1)], directly=True)
    assert (received, is_closed) == ([("end", 1009)], True)


async def test_a_large_text_byte_by_byte_takes_no_more_than_its_size() -> None:
    size = 40_000
    text = frame(TEXT, b"x" * size)
    async with BypassedSocket(directly=True) as stage:
        before = WebSocketProtocol.buffered.total
        for at in range(len(text) - 1):
            stage.protocol.data_received(text[at : at + 1])
            assert WebSocketProtocol.buffered.total - before <= size
        assert stage.received == []
        stage.protocol.data_received(text[-1:])
        await stage.settle()
        assert stage.received == [("text", "x" * size)]
        assert WebSocketProtocol.buffered.total == before


async def test_what_is_whole_counts_until_it_is_taken() -> None:
    async with BypassedSocket(directly=False) as stage:
        before = WebSocketProtocol.buffered.total
        stage.protocol.data_received(frame(TEXT, b"x" * 40_000) + frame(TEXT, b"y" * 50_000))
        assert WebSocketProtocol.buffered.total - before == 90_000
        await stage.settle()
        assert WebSocketProtocol.buffered.total == before
        assert len(stage.received) == 2


async def test_texts_are_received_at_once_also_large_ones_that_come_in_several_reads() -> None:
    small, large = frame(TEXT, b"small"), frame(TEXT, b"x" * (FEED_CHUNK + 1))
    received, _, _, straight = await outcome([small, large + small, large[:100], large[100:] + small], directly=True)
    assert [len(str(text)) for kind, text in received] == [5, FEED_CHUNK + 1, 5, FEED_CHUNK + 1, 5]
    assert straight == 5


async def test_messages_are_written_at_once_and_in_order() -> None:
    async with BypassedSocket(directly=True) as stage:
        assert stage.channel.try_write(["a", "b" * 200])
        assert stage.transport.written == b"\x81\x01a" + b"\x81\x7e\x00\xc8" + b"b" * 200
        stage.transport.written = b""
        stage.channel.try_write(["c"])
        await stage.send({"type": "websocket.send", "text": "d"})
        assert stage.transport.written == b"\x81\x01c" + b"\x81\x01d"


@pytest.mark.parametrize("size", [125, 126, 65_535, 65_536])
async def test_every_form_of_a_length_is_written_right(size: int) -> None:
    async with BypassedSocket(directly=True) as stage:
        stage.channel.try_write(["x" * size])
        ours, stage.transport.written = stage.transport.written, b""
        await stage.send({"type": "websocket.send", "text": "x" * size})
        assert ours == stage.transport.written


async def test_nothing_is_sent_past_a_queue_or_after_bye() -> None:
    async with BypassedSocket(directly=True) as stage:
        stage.protocol.pause_writing()
        assert not stage.channel.try_write(["the browser reads too slowly"])
        stage.protocol.resume_writing()
        assert stage.channel.try_write(["again"])
        await stage.send({"type": "websocket.close", "code": 1000})
        assert not stage.channel.try_write(["too late"])
        await stage.settle()
        assert b"again" in stage.transport.written and b"late" not in stage.transport.written


async def test_messages_sent_before_the_relay_closes_leave_before_its_bye() -> None:
    async with BypassedSocket(directly=True) as stage:
        stage.channel.try_write(["last words"])
        stage.protocol.shutdown()
        assert stage.transport.written.startswith(b"\x81\x0alast words\x88")
