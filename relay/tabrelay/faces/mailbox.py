"""Where a client's message is read: within limits on its size and depth, and on what all of them take together.

What the message means is not known here.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from tabrelay.bulk import MAX_VALUES, SMALL, is_bulky
from tabrelay.config import Settings
from tabrelay.depth import is_deeper_than
from tabrelay.errors import BadRequest
from tabrelay.faces.editors import HEADER, Editors
from tabrelay.faces.exchange import Exchange, too_large
from tabrelay.heading import Heading
from tabserver.wire.budget import Budget
from tabserver.wire.jsonrpc import PARSE_ERROR

NOTHING: Final = object()
BRACKET: Final = ord("[")


class Mailbox:
    """One per relay."""

    def __init__(self, settings: Settings, editors: Editors) -> None:
        self._editors = editors
        self._max_body = settings.max_body
        self._max_depth = settings.max_json_depth
        self.budget = Budget(settings.body_budget)

    async def read(self, exchange: Exchange) -> Any:
        """The JSON of the request's body; NOTHING if the client left. Raises BadRequest."""
        body = await exchange.body(self._max_body, self.budget)
        return NOTHING if exchange.is_gone else self._stamped(body, exchange)

    def open(self, body: bytes, heading: Heading) -> Any:
        """The JSON of a body that is there already. Raises BadRequest."""
        return self._stamped(body, heading)

    def _stamped(self, body: bytes, heading: Heading) -> Any:
        message = self.parse(body)
        self._editors.stamp(heading.header(HEADER), message)
        return message

    def parse(self, body: bytes) -> Any:
        """orjson refuses what the standard library lets through: NaN, lone surrogates, bad UTF-8."""
        if len(body) > self._max_body:
            raise too_large(self._max_body)
        if len(body) > SMALL and is_bulky(body):
            text = f"The body has more than {MAX_VALUES:,} values."
            raise BadRequest(text, status=413, reason="too_large")
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            text = f"The body is not valid JSON: {error}."
            raise BadRequest(text, code=PARSE_ERROR, reason="parse_error") from None
        # Counting brackets is cheap and nearly always enough; only a body with many of them is walked. Whether there is
        # one at all, asked of a byte, is known ten times as fast.
        brackets = body.count(b"{") + (body.count(b"[") if BRACKET in body else 0)
        if brackets > self._max_depth and is_deeper_than(value, self._max_depth):
            raise BadRequest(f"The body nests deeper than {self._max_depth} levels.", reason="too_deep")
        return value
