"""JSON object in the body of a request to the relay's own routes, within limits of size, number of values and nesting.

A body is refused at the limit that it exceeds, before its end. The content type is required, because forms of other
pages can't set it. A route names its limit as a parameter: `SmallBody`, or `LargeBody` where a body may contain the
arguments or the result of a call. Bodies of MCP requests are read in `faces/mcp/body`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, Request, Response
from starlette.requests import ClientDisconnect

from tabrelay.errors import BadRequest
from tabrelay.http.exchange import Exchange
from tabrelay.http.problems import problem_response
from tabrelay.payloads.json_limits import Weight, is_deeper_than
from tabserver.wire.memory_budget import MemoryBudget

MAX_SMALL: Final = 64 * 1024
MAX_LARGE: Final = 4 * 1024 * 1024
MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_READING: Final = 16 * 1024 * 1024
"""Bytes of all bodies that are being read."""

Object = dict[str, Any]

_reading: Final = MemoryBudget(MAX_READING)


async def read_object(request: Request, most: int) -> Object:
    """`most`: bytes. Raises BadRequest."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest("Send it as application/json.", status=415, reason="invalid_request")
    exchange = Exchange(request.scope, request.receive, request._send)
    weight = Weight()

    def weigh(piece: bytes) -> None:
        weight.add(piece)
        # defence: values of a body of the relay's own routes
        if weight.total > MAX_VALUES:
            raise BadRequest(f"The body has more than {MAX_VALUES:,} values.", status=413, reason="too_large")

    # defence: size of a body of the relay's own routes
    body = await exchange.body(most, _reading, weigh)
    if exchange.is_gone:
        raise ClientDisconnect
    if weight.size == 0:  # it arrived in one piece
        weigh(body)
    try:
        value = orjson.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadRequest("Expected a JSON object.", reason="invalid_request")
    if len(body) > MAX_SMALL:
        await asyncio.sleep(0)
    # defence: levels of nesting of a body of the relay's own routes
    if is_deeper_than(value, MAX_DEPTH):
        raise BadRequest(f"The body nests deeper than {MAX_DEPTH} levels.", reason="too_deep")
    return value


async def _read_small(request: Request) -> Object:
    return await read_object(request, MAX_SMALL)


async def _read_large(request: Request) -> Object:
    return await read_object(request, MAX_LARGE)


async def refuse_body(request: Request, error: Exception) -> Response:
    """Exception handler for what `read_object` raises."""
    assert isinstance(error, BadRequest)
    return problem_response(error.status, error.reason, error.message)


SmallBody = Annotated[Object, Depends(_read_small)]
LargeBody = Annotated[Object, Depends(_read_large)]
