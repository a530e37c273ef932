"""Lines from one program, as far as they can be carried. For one that can't, whoever waits is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.parsing import LINES_AT_ONCE, parsed
from tabrelay.system.pipe_lines import LineSplitter, LineTooLong
from tabserver.wire import jsonrpc

log = logging.getLogger("tabrelay.acp")

MAX_LINE: Final = 50 << 20


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
    """`back`: to the one that the lines come from. It waits for an answer to a request; for its own answers, which have
    an error in their stead, others do. Both number their requests alike, so the two must not be mixed up."""
    async for line in lines:
        if not isinstance(line, LineTooLong):
            message = await parsed(AcpMessage.read, line)
            # defence: strings of a frame header: ids on the pipes of an editor and its agent
            if message.id_flaw is None:
                yield message
            else:
                await refuse_id(message, source, reply)
            continue
        text = f"A line of {line.size} bytes from {source} is too long: at most {MAX_LINE >> 20} MiB are carried."
        log.warning("%s", text)
        if line.id is None:
            continue
        if line.is_answer:
            yield AcpMessage.read(acp_message.refusal(line.id.decode(), jsonrpc.INTERNAL_ERROR, text))
        else:
            await reply(acp_message.refusal(line.id.decode(), jsonrpc.INVALID_REQUEST, text))


async def refuse_id(message: AcpMessage, source: str, reply: Callable[[bytes], Awaitable[None]]) -> None:
    """Tables and answers repeat ids. An answer under such an id is dropped: no request with it was carried."""
    log.warning("A message from %s is dropped: %s", source, message.id_flaw)
    if message.is_request:
        await reply(acp_message.refusal("null", jsonrpc.INVALID_REQUEST, str(message.id_flaw)))
