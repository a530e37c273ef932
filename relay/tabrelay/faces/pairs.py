"""The routes of pairing: the relay's own pages trade a one-time code for a token, other pages ask and are answered.

Who may come here was decided by the gate. The two ways look at the Origin again: for the first it must be one of ours,
for the second it is what the token will be bound to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay.codes import PERSON_TTL_S, CodeProblem
from tabrelay.pairing import Asking, Pairing, Refused, State
from tabrelay.policy import SERVE, Policy, PolicyError, parse_origin
from tabrelay.tokens import Tokens
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name

log = logging.getLogger(__name__)

MAX_BODY: Final = 4096
HOLD_S: Final = 20.0  # a page's question is answered by then, also when nobody decided
PROBLEMS: Final = {
    CodeProblem.EXPIRED: "This pairing code is too old. For a new one, run: tabrelay pair",
    CodeProblem.UNKNOWN: "This pairing code was used before or is not of this relay. For a new one, run: tabrelay pair",
}
ENDS: Final = {
    State.REFUSED: (403, "This page was refused."),
    State.EXPIRED: (410, "Nobody answered in time. Ask again."),
    State.UNKNOWN: (404, "This is no request of this page, or a later one took its place."),
}
NO_STORE: Final = {"Cache-Control": "no-store"}

Told = Callable[[Asking, list[str]], None]


def log_asking(asking: Asking, others: list[str]) -> None:
    also = f" (also paired with {', '.join(others)})" if others else ""
    log.warning('%s wants to offer tools as "%s"%s, code %s', asking.origin, asking.server, also, asking.code)


class Pairs:
    """What the routes share. `on_ask` hears of each request, with the origins that are paired for the same name."""

    def __init__(
        self,
        tokens: Tokens,
        policy: Policy,
        *,
        on_ask: Told = log_asking,
        on_paired: Callable[[str], object] = lambda server: None,
        clock: Callable[[], float] = time.monotonic,
        public_url: str = "",
    ) -> None:
        self._public_url = public_url
        self._tokens = tokens
        self._policy = policy
        self._on_ask = on_ask
        self._on_paired = on_paired
        self._clock = clock
        self._pairing = Pairing()
        self._decided = asyncio.Event()

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/pair", self._redeem, methods=["POST"])
        app.add_api_route("/-/codes", self._mint, methods=["POST"])
        app.add_api_route("/-/ask", self._ask, methods=["POST"])
        app.add_api_route("/-/ask/answer", self._answer, methods=["POST"])
        app.add_api_route("/-/pairs", self._list, methods=["GET"])
        app.add_api_route("/-/pairs", self._change, methods=["POST"])

    # -- the relay's own pages ----------------------------------------------------------------------------------------

    async def _redeem(self, request: Request) -> Response:
        origin = _origin(request)
        if not self._policy.is_own_origin(origin):
            return _error(403, "forbidden", "Only the relay's own pages pair in this way.")
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        code = body.get("code")
        if not isinstance(code, str):
            return _error(400, "invalid_request", 'Expected {"code": "…"}.')
        got = self._tokens.redeem(code, origin, self._clock())
        if isinstance(got, CodeProblem):
            return _error(403, got.value, PROBLEMS[got])
        return JSONResponse({"token": got.token, "server": got.server}, headers=NO_STORE)

    async def _mint(self, request: Request) -> Response:
        code = self._tokens.mint(None, PERSON_TTL_S, self._clock())
        # The gate has compared Host with the exact list, so it is safe to build an address on.
        base = self._public_url or f"{request.scope['scheme']}://{request.headers['host'].strip()}"
        body = {"url": f"{base}/#pair={code}", "expires_s": int(PERSON_TTL_S)}
        return JSONResponse(body, headers=NO_STORE)

    # -- pages of other origins ---------------------------------------------------------------------------------------

    async def _ask(self, request: Request) -> Response:
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        try:
            origin = _exact(_origin(request))
            server = check_server_name(_text(body, "server"))
        except (PolicyError, ServerNameError) as problem:
            return _error(400, "invalid_request", str(problem))
        ticket = self._pairing.ask(origin, server, self._clock())
        if isinstance(ticket, Refused):
            return _later(ticket)
        [asking] = [each for each in self._pairing.waiting(self._clock()) if each.code == ticket.code]
        self._decided.set()  # whoever waits for an earlier request of this origin need not wait any longer
        self._on_ask(asking, self._paired_for(server, besides=origin))
        answer = {"request": ticket.request, "code": ticket.code, "expires_s": int(ticket.life_s)}
        return JSONResponse(answer, headers=NO_STORE)

    async def _answer(self, request: Request) -> Response:
        """The page asks what became of its request; the answer comes when somebody decided, or after a while."""
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        secret, origin = _text(body, "request"), _origin(request)
        found = self._pairing.look(secret, origin, self._clock())
        if isinstance(found, Asking) and found.state is State.WAITING:
            await self._wait(found)
            found = self._pairing.look(secret, origin, self._clock(), is_known=True)
        if isinstance(found, Refused):
            return _later(found)
        state = State.UNKNOWN if found is None else found.state
        if state in ENDS:
            return _error(ENDS[state][0], state.value, ENDS[state][1])
        if found is None or state is State.WAITING:
            return JSONResponse({"state": state.value}, headers=NO_STORE)
        self._pairing.pick_up(secret)
        token = self._tokens.issue(origin, found.server, (SERVE,))
        return JSONResponse({"state": state.value, "token": token, "server": found.server}, headers=NO_STORE)

    async def _wait(self, asking: Asking) -> None:
        try:
            async with asyncio.timeout(HOLD_S):
                while asking.is_waiting(self._clock()):
                    self._decided.clear()
                    await self._decided.wait()
                    if all(each is not asking for each in self._pairing.waiting(self._clock())):
                        return
        except TimeoutError:
            pass

    # -- the person ---------------------------------------------------------------------------------------------------

    async def _list(self) -> Response:
        now = self._clock()
        asking = [
            {
                "code": each.code,
                "origin": each.origin,
                "server": each.server,
                "since_s": round(now - each.since, 1),
                "others": self._paired_for(each.server, besides=each.origin),
            }
            for each in self._pairing.waiting(now)
        ]
        wall = time.time()
        paired = [
            {
                "id": grant.id,
                "origin": grant.origin,
                "servers": None if grant.servers is None else list(grant.servers),
                "since_s": round(wall - grant.created, 1),
                "own": self._policy.is_own_origin(grant.origin),
            }
            for grant in self._tokens.grants()
            if grant.origin is not None
        ]
        return JSONResponse({"asking": asking, "paired": paired}, headers=NO_STORE)

    async def _change(self, request: Request) -> Response:
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        match body:
            case {"approve": str(code)} | {"refuse": str(code)}:
                return self._decide(code, approve="approve" in body)
            case {"revoke": str(id)}:
                gone = self._tokens.revoke(lambda grant: grant.origin is not None and grant.id == id)
                if not gone:
                    return _error(404, "unknown", "No paired page has that id. To see them: tabrelay pairs")
                return JSONResponse({"revoked": [grant.origin for grant in gone]}, headers=NO_STORE)
        return _error(400, "invalid_request", 'Expected {"approve": CODE}, {"refuse": CODE} or {"revoke": ID}.')

    def _decide(self, code: str, *, approve: bool) -> Response:
        decided = self._pairing.decide(code, approve=approve, now=self._clock())
        if decided is None:
            return _error(404, "unknown", "No page asks with that code (any more). To see who asks: tabrelay pairs")
        self._decided.set()
        log.info("%s: %s as %s", "paired" if approve else "refused", decided.origin, decided.server)
        if approve:
            self._on_paired(decided.server)
        answer = {"origin": decided.origin, "server": decided.server, "state": decided.state.value}
        return JSONResponse(answer, headers=NO_STORE)

    def _paired_for(self, server: str, besides: str) -> list[str]:
        found = {grant.origin for grant in self._tokens.grants() if grant.servers and server in grant.servers}
        return sorted(origin for origin in found if origin is not None and origin != besides)


def _origin(request: Request) -> str:
    """Several are none, as they are for the gate."""
    return ", ".join(value.strip() for value in request.headers.getlist("origin"))


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    return value if isinstance(value, str) else ""


def _exact(origin: str) -> str:
    """A token is bound to the text that a browser sends, so the text must be what a browser would send."""
    if parse_origin(origin) != origin:
        raise PolicyError("The Origin is not written the way a browser writes it.")
    return origin


def _later(refused: Refused) -> Response:
    seconds = max(1, round(refused.retry_s))
    headers = {**NO_STORE, "Retry-After": str(seconds)}
    body = {"error": refused.reason, "message": refused.message, "retry_s": seconds}
    return JSONResponse(body, 429, headers=headers)


def _error(status: int, reason: str, message: str) -> Response:
    return JSONResponse({"error": reason, "message": message}, status, headers=NO_STORE)


async def _json_object(request: Request) -> dict[str, Any] | Response:
    """A small JSON object. The content type is required: forms, which any page may send, can't have it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _error(415, "invalid_request", "Send it as application/json.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            return _error(413, "too_large", f"At most {MAX_BODY} bytes.")
    try:
        value = orjson.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return _error(400, "invalid_request", "Expected a JSON object.")
    return value
