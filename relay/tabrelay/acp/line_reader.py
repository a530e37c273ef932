"""Line input of the conductor: splits byte chunks into lines, parses ACP messages, and reads ahead.

`split_lines` and `read_messages` limit a line to 50 MiB and refuse a message that cannot be forwarded, so that the side
that waits for an answer gets an error. `LineReader` reads a few lines ahead, so that it detects the end of the stream
while earlier lines still wait for delivery.
Nothing here decides where a message goes (`router`, `proxy_chain`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.parsing import LINES_AT_ONCE, parsed
from tabrelay.system.pipe_lines import LineSplitter, LineTooLong
from tabrelay.system.tasks import cancel
from tabserver.wire import jsonrpc

log = logging.getLogger("tabrelay.acp")

MAX_LINE: Final = 50 << 20
"""Bytes of one line."""

# Lines and bytes that are read ahead.
MAX_LINES: Final = 32
MAX_BYTES: Final = 1 << 20


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | LineTooLong]:
    lines = LineSplitter(MAX_LINE)
    async for chunk in chunks:
        for number, line in enumerate(lines.feed(chunk), 1):
            yield line
            if number % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
    if (last := lines.close()) is not None:
        yield last


async def read_messages(
    lines: AsyncIterator[bytes | LineTooLong], source: str, reply: Callable[[bytes], Awaitable[None]]
) -> AsyncIterator[AcpMessage]:
    """`reply` writes to the program that sent the lines.

    A request that is too long is refused through `reply`: its sender waits for the answer. A response that is too long
    is replaced by an error response with the same id and yielded: the other side waits for that. Both sides number
    their requests alike, so the two cases must not be mixed up.
    """
    async for line in lines:
        if not isinstance(line, LineTooLong):
            message = await parsed(AcpMessage.read, line)
            # defence: strings of a frame header: ids on the pipes of an editor and its agent
            if message.id_flaw is None:
                yield message
            else:
                await refuse_id(message, source, reply)
            continue
        text = f"A line of {line.size} bytes from {source} is too long: at most {MAX_LINE >> 20} MiB are forwarded."
        log.warning("%s", text)
        if line.id is None:
            continue
        if line.is_answer:
            yield AcpMessage.read(acp_message.refusal(line.id.decode(), jsonrpc.INTERNAL_ERROR, text))
        else:
            await reply(acp_message.refusal(line.id.decode(), jsonrpc.INVALID_REQUEST, text))


async def refuse_id(message: AcpMessage, source: str, reply: Callable[[bytes], Awaitable[None]]) -> None:
    """Drops a message whose id is too long or not a scalar: tables and responses would repeat the id.

    A request is refused. A response is only dropped: no request with such an id was forwarded.
    """
    log.warning("A message from %s is dropped: %s", source, message.id_flaw)
    if message.is_request:
        await reply(acp_message.refusal("null", jsonrpc.INVALID_REQUEST, str(message.id_flaw)))


class LineReader:
    """Read-ahead buffer for the lines of an MCP client. It reads until it is closed.

    `ended` is set when the client has closed the stream and all its lines are in the buffer.
    """

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._source = lines
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            while self._lines:
                line = self._lines.popleft()
                self._size -= len(line)
                self._has_room.set()
                yield line
            if self._reading.done():
                self._reading.result()  # raises if the reader failed
                return
            self._has_news.clear()
            await self._has_news.wait()

    async def close(self) -> None:
        await cancel(self._reading)

    async def _read(self) -> None:
        try:
            async for line in self._source:
                self._lines.append(line)
                self._size += len(line)
                self._has_news.set()
                while len(self._lines) >= MAX_LINES or self._size >= MAX_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
            self.ended.set()
        finally:
            # In the next callback: `lines` checks that this task is done.
            asyncio.get_running_loop().call_soon(self._has_news.set)
