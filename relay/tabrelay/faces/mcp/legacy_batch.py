"""JSON-RPC batches of 2025-03-26, the only version that has them: an array of messages in, an array of responses out.

All requests of a batch run concurrently; the response is sent when every one is answered. Notices during a batch go to
the session's GET stream, because the array has no place for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import BadRequest, RelayError
from tabrelay.faces.mcp.jsonrpc import check_message, is_request
from tabrelay.http.exchange import Exchange, Header, error_body
from tabserver.wire import methods

MAX_BATCH: Final = 64

Message = dict[str, Any]


async def answer_batch(
    exchange: Exchange,
    messages: list[Any],
    *,
    offline_answer: Callable[[Message], bytes | None],
    start: Callable[[Message], Awaitable[Pending]],
    pass_on: Callable[[Message], None],
    deliver: Callable[[Notice], None],
    server: str,
    headers: tuple[Header, ...],
) -> None:
    """Handle all messages concurrently, and respond when every request is answered."""
    requests = _check(messages)

    async def ask(message: Message) -> bytes:
        try:
            known = offline_answer(message)
            if known is not None:
                return known
            pending = await start(message)
            try:
                while True:
                    event = await pending.next()
                    if isinstance(event, Reply):
                        return event.payload.encode()
                    if event is not None and not event.ends_stream:
                        deliver(event)
            finally:
                pending.release()
        except RelayError as error:
            return error_body(error, message["id"], server)

    for message in messages:
        if not is_request(message):
            pass_on(message)
    if not requests:
        await exchange.reply(202)
        return
    answers = await asyncio.gather(*(ask(message) for message in requests))
    await exchange.json(200, b"[" + b",".join(answers) + b"]", headers)


def _check(messages: list[Any]) -> list[Message]:
    """The requests of a batch. Raises BadRequest."""
    if not messages or len(messages) > MAX_BATCH:
        raise BadRequest(f"A batch has 1 to {MAX_BATCH} messages.")
    for message in messages:
        check_message(message)
        if message.get("method") == methods.INITIALIZE:
            raise BadRequest("initialize can't be part of a batch.")
    requests = [message for message in messages if is_request(message)]
    ids = [message["id"] for message in requests]
    if len(set(ids)) != len(ids):
        raise BadRequest("Two requests of this batch have the same id.")
    return requests
