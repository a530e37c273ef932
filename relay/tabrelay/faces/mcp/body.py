"""Reader of request bodies: JSON within limits on size, number of values and nesting, and on the memory of all bodies.

Each step of a large body (parse, check, serialize) gets its own callback of the event loop, so that other requests are
served in between. A few large bodies are parsed at a time. The others wait, and count as being read until their message
is handed over, so that many requests that arrive together take neither memory nor long iterations of the event loop.
Does not interpret the message.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from tabrelay import mcp_headers
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.http.exchange import Exchange, too_large
from tabrelay.payloads.json_limits import DENSEST, Weight, is_deeper_than, is_heavy
from tabserver.wire.frames import META_ACP
from tabserver.wire.jsonrpc import PARSE_ERROR
from tabserver.wire.memory_budget import MemoryBudget

CLIENT_GONE: Final = object()
BRACKET: Final = ord("[")
ACP_KEY: Final = META_ACP.encode()
LARGE: Final = 64 * 1024
"""Bytes; the steps of a larger body each get a callback of the event loop."""
PARSED_AT_ONCE: Final = 4
"""Larger bodies that are parsed at the same time. A place is held for a few iterations of the event loop."""


class BodyReader:
    """Reads the bodies of all requests. One per relay."""

    def __init__(self, settings: Settings, acp_sessions: AcpSessions) -> None:
        self._acp_sessions = acp_sessions
        self._max_body = settings.max_body
        self._max_depth = settings.max_json_depth
        self._max_values = settings.max_values
        self._light = settings.max_values // DENSEST  # bytes that can't have too many values
        self.budget = MemoryBudget(settings.body_budget)
        self._places = asyncio.Semaphore(PARSED_AT_ONCE)

    async def read(self, exchange: Exchange) -> Any:
        """The JSON of the request's body; CLIENT_GONE if the client hung up. Raises BadRequest."""
        weight: Weight | None = None  # of a body that arrives in pieces, or is large

        def weigh(piece: bytes) -> None:
            nonlocal weight
            weight = weight or Weight()
            weight.add(piece)
            # defence: values of a body
            if weight.total > self._max_values:
                raise self._too_many()

        body = await exchange.body(self._max_body, self.budget, weigh)
        if exchange.is_gone:
            return CLIENT_GONE
        if len(body) <= LARGE:
            return self.read_small(body, exchange.first.get(mcp_headers.RAW_TABRELAY_ACP))
        # defence: large bodies that are not parsed yet
        size = len(body)
        self.budget.add(size)  # `exchange.body` has just released as many
        try:
            # defence: large bodies that are parsed at the same time
            async with self._places:
                if weight is None:  # it arrived in one piece
                    weigh(body)
                await asyncio.sleep(0)
                message = _loads(body)
                del body
                await asyncio.sleep(0)
                self._check_depth(message)
                self._acp_sessions.add_acp_meta(exchange.first.get(mcp_headers.RAW_TABRELAY_ACP), message)
                await asyncio.sleep(0)
                return message
        finally:
            self.budget.release(size)

    def read_small(self, body: bytes, acp: str | None) -> Any:
        """The JSON of a small body that was already received, with the ACP session in it. Raises BadRequest. `acp`: the
        header that names that session."""
        if len(body) > self._max_body:
            raise too_large(self._max_body)
        if len(body) > self._light and is_heavy(body, self._max_values):
            raise self._too_many()
        message = _loads(body)
        # Counting brackets is cheap and nearly always enough; only a body with many of them is walked. `in` with a byte
        # is ten times as fast as `count`.
        brackets = body.count(b"{") + (body.count(b"[") if BRACKET in body else 0)
        if brackets > self._max_depth:
            self._check_depth(message)
        # Only a body with an escape can have the key of ACP without having its characters.
        if acp is not None or ACP_KEY in body or b"\\" in body:
            self._acp_sessions.add_acp_meta(acp, message)
        return message

    def _check_depth(self, value: Any) -> None:
        # defence: levels of nesting
        if is_deeper_than(value, self._max_depth):
            raise BadRequest(f"The body nests deeper than {self._max_depth} levels.", reason="too_deep")

    def _too_many(self) -> BadRequest:
        text = (
            f"The body has more than {self._max_values:,} values, where keys and lists count twice. "
            "Send fewer at once, or send them as one text."
        )
        return BadRequest(text, status=413, reason="too_large")


def _loads(body: bytes) -> Any:
    """orjson rejects what the standard library accepts: NaN, lone surrogates, invalid UTF-8."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        text = f"The body is not valid JSON: {error}."
        raise BadRequest(text, code=PARSE_ERROR, reason="parse_error") from None
