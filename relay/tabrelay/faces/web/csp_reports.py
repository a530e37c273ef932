"""Endpoint for content security policy reports of the relay's own pages (`POST /-/reports`).

A report means either a bug in our pages or foreign markup in them, so it is logged. Browsers send reports without a
token. Therefore a report is validated, shortened, and limited to PER_MINUTE log lines a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from tabrelay.admission.policy import Policy
from tabrelay.payloads.printable_text import printable

log = logging.getLogger(__name__)

ROUTE: Final = "/-/reports"
MAX_BODY: Final = 16 * 1024
PER_MINUTE: Final = 20
TYPES: Final = ("application/csp-report", "application/reports+json", "application/json")


class CspReports:
    """Logs valid reports, within a rate limit."""

    def __init__(self, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._minute = -1
        self._received = 0

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route(ROUTE, self._report, methods=["POST"])

    async def _report(self, request: Request) -> Response:
        origin = request.headers.get("origin", "").strip()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if (origin and not self._policy.is_own_origin(origin)) or kind not in TYPES:
            return Response(status_code=403)
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    return Response(status_code=413)
        except ClientDisconnect:  # no client is left to answer, and this is not a fault of the relay
            return Response(status_code=400)
        if self._is_within_rate():
            self._write(body)
        return Response(status_code=204)

    def _is_within_rate(self) -> bool:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._received = minute, 0
        self._received += 1
        return self._received <= PER_MINUTE

    def _write(self, body: bytes) -> None:
        try:
            report: Any = orjson.loads(body)["csp-report"]
            page, blocked, rule = (str(report[key]) for key in ("document-uri", "blocked-uri", "violated-directive"))
        except (ValueError, KeyError, TypeError):
            return
        log.warning(
            "content security policy: %s tried to load %s, blocked by %s",
            printable(page),
            printable(blocked),
            printable(rule),
        )
