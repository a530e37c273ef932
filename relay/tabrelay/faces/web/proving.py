"""Proof of the relay's identity (`POST /-/prove`): the relay knows a client's token before the client sends it.

Open to every origin and stateless: an answer costs two signatures. The content type is not checked, so that pages of
other origins need no preflight; the answer changes nothing and is useful only to the holder of the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay.calls.proof import ROUTE, UNKNOWN_KEY, WRONG_AUTHORITY, is_nonce
from tabrelay.http.problems import problem_response

MAX_BODY: Final = 1024
NO_STORE: Final = {"Cache-Control": "no-store"}

Prove = Callable[[str, str, str], dict[str, str] | None]


class Proving:
    """Signs challenges for the addresses of this relay."""

    def __init__(self, prove: Prove, authorities: frozenset[str]) -> None:
        """`authorities`: the addresses that only this relay listens on. Signing any other one would vouch for a program
        that holds a port of this computer and forwards the challenge."""
        self._prove = prove
        self._authorities = authorities

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route(ROUTE, self._answer, methods=["POST"])

    async def _answer(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return _error(413, "too_large", f"At most {MAX_BODY} bytes.")
        match _read(body):
            case {"key": str(key_id), "nonce": nonce, "authority": str(authority)} if is_nonce(nonce):
                pass
            case _:
                return _error(
                    400, "invalid_request", 'Expected {"key": ID, "nonce": 16 BYTES, "authority": HOST:PORT}.'
                )
        # defence: another program on the port: no other address is signed
        if authority not in self._authorities:
            return _error(421, WRONG_AUTHORITY, "This relay does not hold that address. See --allow-host.")
        answer = self._prove(key_id, authority, nonce)
        if answer is None:
            return _error(403, UNKNOWN_KEY, "No token has this key (any more).")
        return JSONResponse(answer, headers=NO_STORE)


def _read(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def _error(status: int, reason: str, message: str) -> Response:
    return problem_response(status, reason, message, NO_STORE)
