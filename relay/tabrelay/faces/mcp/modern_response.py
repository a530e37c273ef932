"""HTTP response of a modern call: one JSON body if the reply comes soon, else a server-sent event stream.

A stream is started at the first notice or after `stream_after_s`, and gets a comment every `keepalive_s`. If the client
hangs up, the call is abandoned. Modern streams can't be resumed; those of sessions are in `resumable_response`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import BrowserGone, RelayError
from tabrelay.http.exchange import Exchange
from tabrelay.payloads.sliced import Body

# Most calls are answered within this time. Watching for a hang-up costs a task, so it starts only afterwards.
QUICK_REPLY_S: Final = 0.05


class ClientGone(RelayError):
    """The client hung up. Ends the wait for the reply; never leaves this module."""

    reason = "cancelled"


async def send_response(
    exchange: Exchange,
    pending: Pending,
    server: str,
    *,
    stream_after_s: float,
    keepalive_s: float,
    status_of: Callable[[Reply], int],
    on_gone: Callable[[], None],
    is_redundant: Callable[[Notice], bool] | None = None,
    closing_event: bytes | None = None,
) -> None:
    """Send the reply as JSON, or start a stream at the first notice or after `stream_after_s`.

    `on_gone` is called when the client hangs up before the reply. `is_redundant`: the client does not need this notice.
    `closing_event` ends a stream whose browser was lost, if that is no failure for this kind of call.
    """
    is_gone = False

    def hung_up() -> None:
        nonlocal is_gone
        is_gone = True
        on_gone()
        pending.end(ClientGone("the client hung up"))

    try:
        await _send_outcome(
            exchange,
            pending,
            hung_up,
            stream_after_s=stream_after_s,
            keepalive_s=keepalive_s,
            status_of=status_of,
            is_redundant=is_redundant,
        )
    except ClientGone:
        return
    except RelayError as error:
        if closing_event is not None and exchange.is_streaming and isinstance(error, BrowserGone):
            await exchange.event(closing_event)
        elif not is_gone:
            await exchange.error(error, pending.call.id, server)
        if exchange.is_streaming:
            await exchange.end_stream()
    finally:
        exchange.unwatch()
        if not pending.is_done:  # the connection broke during a write
            hung_up()
        pending.release()


async def _send_outcome(
    exchange: Exchange,
    pending: Pending,
    hung_up: Callable[[], None],
    *,
    stream_after_s: float,
    keepalive_s: float,
    status_of: Callable[[Reply], int],
    is_redundant: Callable[[Notice], bool] | None,
) -> None:
    """Send notices and the reply."""
    event = await pending.next(QUICK_REPLY_S)
    if isinstance(event, Reply):
        status, event = status_of(event), None
        await _send_whole(exchange, status, pending.body())
        return
    exchange.watch(hung_up, QUICK_REPLY_S if event is not None else 0.0)
    if event is None and exchange.is_streaming:  # the stream has begun on the fast path
        event = await pending.next(keepalive_s)
    wait_s = max(stream_after_s - QUICK_REPLY_S, 0.0)
    while not isinstance(event, Reply):
        if event is None and not exchange.is_streaming:
            event = await pending.next(wait_s)
            if isinstance(event, Reply):
                status, event = status_of(event), None
                await _send_whole(exchange, status, pending.body())
                return
        if not exchange.is_streaming:
            await exchange.start_stream()
        if isinstance(event, Notice):
            payload = event.payload.encode() if is_redundant is None or not is_redundant(event) else None
            event = None  # only the bytes are kept during the write
            if payload is not None:
                await exchange.event(payload)
                payload = None
        elif event is None:
            await exchange.comment()
        if not isinstance(event, Reply):
            event = await pending.next(keepalive_s)
    event = None
    await exchange.event(pending.body(), is_last=True)


async def _send_whole(exchange: Exchange, status: int, body: Body) -> None:
    """Send the reply as JSON, or as an event if a stream was already started."""
    if exchange.is_streaming:
        await exchange.event(body, is_last=True)
    else:
        await exchange.json(status, body)
