"""Lines from one program, as far as they can be carried. For one that can't, whoever waits is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tabrelay.acp import message as frames
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.parsing import LINES_AT_ONCE, parsed
from tabrelay.system.pipe_lines import LineSplitter, LineTooLong
from tabserver.wire import jsonrpc

log = logging.getLogger("tabrelay.acp")

MAX_LINE: Final = 50 << 20


async def cut(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | LineTooLong]:
    lines = LineSplitter(MAX_LINE)
    async for chunk in chunks:
        for number, line in enumerate(lines.feed(chunk), 1):
            yield line
            if number % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
    if (last := lines.close()) is not None:
        yield last


async def carried(
    lines: AsyncIterator[bytes | LineTooLong], whose: str, back: Callable[[bytes], Awaitable[None]]
) -> AsyncIterator[AcpMessage]:
    """`back`: to the one that the lines come from. It waits for an answer to a request; for its own answers, which have
    an error in their stead, others do. Both number their requests alike, so the two must not be mixed up."""
    async for line in lines:
        if not isinstance(line, LineTooLong):
            frame = await parsed(AcpMessage.read, line)
            # defence: strings of a frame header: ids on the pipes of an editor and its agent
            if frame.id_flaw is None:
                yield frame
            else:
                await refuse_id(frame, whose, back)
            continue
        text = f"A line of {line.size} bytes from {whose} is too long: at most {MAX_LINE >> 20} MiB are carried."
        log.warning("%s", text)
        if line.id is None:
            continue
        if line.is_answer:
            yield AcpMessage.read(frames.refusal(line.id.decode(), jsonrpc.INTERNAL_ERROR, text))
        else:
            await back(frames.refusal(line.id.decode(), jsonrpc.INVALID_REQUEST, text))


async def refuse_id(frame: AcpMessage, whose: str, back: Callable[[bytes], Awaitable[None]]) -> None:
    """Tables and answers repeat ids. An answer under such an id is dropped: no request with it was carried."""
    log.warning("A message from %s is dropped: %s", whose, frame.id_flaw)
    if frame.is_request:
        await back(frames.refusal("null", jsonrpc.INVALID_REQUEST, str(frame.id_flaw)))
