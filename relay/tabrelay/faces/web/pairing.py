"""Routes of pairing: the relay's own pages redeem one-time codes for tokens; pages of other origins ask the user.

The gate has decided who may use these routes. The handlers check the Origin again: to redeem a code it must be one of
the relay's own, and to ask it is the origin that the token will be bound to. A token is stored before its approval is
used up. The state of requests and codes is in `admission.pairing` and `admission.pairing_codes`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from tabrelay.admission.pairing import Pairing, PairingRequest, PairingState, canonical
from tabrelay.admission.pairing_codes import PERSON_TTL_S, PairingCodeError
from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import StateError, Tokens
from tabrelay.calls.principal import SERVE
from tabrelay.errors import BadRequest
from tabrelay.faces.web.loopback_approvals import LoopbackApprovals
from tabrelay.http.addresses import PolicyError, parse_origin
from tabrelay.http.json_body import read_object
from tabrelay.http.problems import problem_response
from tabrelay.system.program import NAME
from tabserver.wire.errors import ServerNameError
from tabserver.wire.help_codes import BY_REASON
from tabserver.wire.names import check_server_name

log = logging.getLogger(__name__)

MAX_BODY: Final = 4096
HOLD_S: Final = 20.0  # a long poll of a page is answered by then, also without a decision
MAX_HELD: Final = 64  # long polls at a time; a newer one ends the oldest
COLLECT_S: Final = 5.0  # how long an approval waits for the page of a request that is not in the list
PROBLEMS: Final = {
    PairingCodeError.EXPIRED: "This pairing code is too old.",
    PairingCodeError.UNKNOWN: "This pairing code was used before or is not of this relay.",
}
ENDS: Final = {
    PairingState.REFUSED: (403, "This page was refused."),
    PairingState.EXPIRED: (410, "The request was not answered in time. Ask again."),
    PairingState.UNKNOWN: (404, "This is not a request of this page, or the relay was restarted. Ask again."),
}
HELP: Final = {
    PairingState.REFUSED: BY_REASON["pairing_refused"],
    PairingState.EXPIRED: BY_REASON["expired"],
    PairingState.UNKNOWN: BY_REASON["unknown"],
}
MAX_COLLECTING: Final = 16
NO_STORE: Final = {"Cache-Control": "no-store"}

OnAsk = Callable[[PairingRequest, list[str]], None]


def log_asking(asking: PairingRequest, others: list[str]) -> None:
    also = f" (also paired with {', '.join(others)})" if others else ""
    log.warning('%s wants to offer tools as "%s"%s, code %s', asking.origin, asking.server, also, asking.code)


class PairingRoutes:
    """Handlers of all pairing routes.

    `on_ask` is called with each request and the origins that are already paired for the same name.
    """

    def __init__(
        self,
        tokens: Tokens,
        policy: Policy,
        *,
        on_ask: OnAsk = log_asking,
        on_paired: Callable[[str], object] = lambda server: None,
        clock: Callable[[], float] = time.monotonic,
        public_url: str = "",
        collect_s: float = COLLECT_S,
        loopback: LoopbackApprovals | None = None,
        declared: Collection[str] = (),
        command: str = NAME,
    ) -> None:
        """`loopback`: approvals that cover the other loopback names of a port. `declared`: names that the user gave on
        the command line. `command`: what starts this program, for the relay's own pages and for commands."""
        self._command = command
        self._loopback = loopback
        self._declared = frozenset(declared)
        self._collect_s = collect_s
        self._public_url = public_url
        self._tokens = tokens
        self._policy = policy
        self._on_ask = on_ask
        self._on_paired = on_paired
        self._clock = clock
        self._pairing = Pairing()
        self._decided = asyncio.Event()
        self._collecting: dict[
            str, asyncio.Future[PairingRequest]
        ] = {}  # approvals by code, until their page collects them
        self._held: dict[object, None] = {}  # waiting long polls, oldest first
        self._is_closed = False

    def close(self) -> None:
        """The relay stops: answer all waiting long polls."""
        self._is_closed = True
        self._held.clear()
        self._wake()

    def add_routes(self, app: FastAPI) -> None:
        app.add_api_route("/-/pair", self._redeem, methods=["POST"])
        app.add_api_route("/-/codes", self._mint, methods=["POST"])
        app.add_api_route("/-/ask", self._ask, methods=["POST"])
        app.add_api_route("/-/ask/answer", self._answer, methods=["POST"])
        app.add_api_route("/-/pairs", self._list, methods=["GET"])
        app.add_api_route("/-/pairs", self._change, methods=["POST"])

    # -- the relay's own pages -----------------------------------------------------------------------------------------

    async def _redeem(self, request: Request) -> Response:
        origin = _origin(request)
        if not self._policy.is_own_origin(origin):
            return _error(403, "forbidden", "Only the relay's own pages can redeem a pairing code.")
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        code = body.get("code")
        if not isinstance(code, str):
            return _error(400, "invalid_request", 'Expected {"code": "…"}.')
        try:
            got = self._tokens.redeem(code, origin, self._clock())
        except (OSError, StateError) as problem:
            return _not_stored(problem)
        if isinstance(got, PairingCodeError):
            return _error(403, got.value, f"{PROBLEMS[got]} For a new one, run: {self._command} pair")
        return JSONResponse({"token": got.token, "server": got.server}, headers=NO_STORE)

    async def _mint(self, request: Request) -> Response:
        code = self._tokens.mint(None, PERSON_TTL_S, self._clock())
        # The gate has compared Host with the exact list, so an address can be built from it.
        base = self._public_url or f"{request.scope['scheme']}://{request.headers['host'].strip()}"
        body = {"url": f"{base}/#pair={code}", "expires_s": int(PERSON_TTL_S)}
        return JSONResponse(body, headers=NO_STORE)

    @property
    def requests(self) -> Pairing:
        """The requests of pages that ask."""
        return self._pairing

    def show(self, asking: PairingRequest) -> None:
        """Tell the user of a page that asks."""
        self._on_ask(asking, self._paired_for(asking.server, besides=asking.origin))

    # -- pages of other origins ----------------------------------------------------------------------------------------

    async def _ask(self, request: Request) -> Response:
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        try:
            origin = _exact(_origin(request))
            server = check_server_name(_text(body, "server"))
        except (PolicyError, ServerNameError) as problem:
            return _error(400, "invalid_request", str(problem))
        now = self._clock()
        covering = None if self._loopback is None else await self._loopback.covering(origin, server, request.scope)
        if covering is not None:
            log.warning('%s may offer tools as "%s", as %s may: approved for both names', origin, server, covering)
            return self._approved(origin, server, now)
        if await self._is_app(origin, server, request):
            return self._approved(origin, server, now)
        ticket = self._pairing.ask(origin, server, now)
        if ticket.is_user_notified:
            self.show(PairingRequest(ticket.code, origin, server, now))
        answer = {"request": ticket.request, "code": ticket.code, "expires_s": int(ticket.life_s)}
        return JSONResponse(answer, headers=NO_STORE)

    def _approved(self, origin: str, server: str, now: float) -> Response:
        """Without a question: the page collects its token at once."""
        ticket = self._pairing.ask_approved(origin, server, now)
        self._on_paired(server)
        answer = {"request": ticket.request, "code": ticket.code, "expires_s": int(ticket.life_s), "approved": True}
        return JSONResponse(answer, headers=NO_STORE)

    async def _is_app(self, origin: str, server: str, request: Request) -> bool:
        """The page of the app that this relay serves, for a name that is its own or that no other site has."""
        apps = self._policy.app_origins
        if origin not in apps or self._loopback is None:
            return False
        # defence: an app gets no name of another site without a question
        others = [other for other in self._paired_for(server, besides=origin) if other not in apps]
        is_free = server in self._declared or not others
        return is_free and await self._loopback.allows_app(origin, server, request.scope)

    async def _answer(self, request: Request) -> Response:
        """Long poll of a page for the decision on its request; answered on the decision, or after HOLD_S."""
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        secret, origin = _text(body, "request"), _origin(request)
        found = self._pairing.find(secret, origin, self._clock())
        if found is not None and found.state is PairingState.WAITING:
            found = await self._wait(secret, origin)
        state = PairingState.UNKNOWN if found is None else found.state
        if state in ENDS:
            return problem_response(ENDS[state][0], state.value, ENDS[state][1], NO_STORE, help=HELP[state])
        if found is None or state is PairingState.WAITING:
            return JSONResponse({"state": state.value}, headers=NO_STORE)
        # defence: a full disk uses up an approval
        try:
            # First the token, then the end of the approval: a token that can't be stored does not use it up.
            token = self._tokens.issue_for_page(origin, found.server, (SERVE,))
        except (OSError, StateError) as problem:
            return _not_stored(problem)
        # defence: a token that several pick up
        self._pairing.collect(secret, self._clock())
        collecting = self._collecting.get(found.code)
        if collecting is not None and not collecting.done():
            collecting.set_result(found)
        return JSONResponse({"state": state.value, "token": token, "server": found.server}, headers=NO_STORE)

    async def _wait(self, secret: str, origin: str) -> PairingRequest | None:
        mine = object()
        if not self._is_closed:
            self._held[mine] = None
        # defence: questions of pages that wait
        if len(self._held) > MAX_HELD:
            del self._held[next(iter(self._held))]
            self._wake()
        found = self._pairing.find(secret, origin, self._clock())
        try:
            async with asyncio.timeout(HOLD_S):
                while mine in self._held and found is not None and found.state is PairingState.WAITING:
                    await self._decided.wait()
                    found = self._pairing.find(secret, origin, self._clock())
        except TimeoutError:
            found = self._pairing.find(secret, origin, self._clock())
        finally:
            self._held.pop(mine, None)
        return found

    def _wake(self) -> None:
        """Wake every waiting long poll; each checks its own request again."""
        decided, self._decided = self._decided, asyncio.Event()
        decided.set()

    # -- the user ------------------------------------------------------------------------------------------------------

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
            for grant in self._tokens.issued()
            if grant.origin is not None
        ]
        return JSONResponse({"asking": asking, "paired": paired}, headers=NO_STORE)

    async def _change(self, request: Request) -> Response:
        body = await _json_object(request)
        if isinstance(body, Response):
            return body
        match body:
            case {"approve": str(code)} | {"refuse": str(code)}:
                return await self._decide(code, approve="approve" in body)
            case {"revoke": str(id)}:
                gone = self._tokens.revoke_pages(id)
                if not gone:
                    return _error(404, "unknown", f"No paired page has that id. To see them: {self._command} pairs")
                return JSONResponse({"revoked": [grant.origin for grant in gone]}, headers=NO_STORE)
        return _error(400, "invalid_request", 'Expected {"approve": CODE}, {"refuse": CODE} or {"revoke": ID}.')

    async def _decide(self, code: str, *, approve: bool) -> Response:
        decided = self._pairing.decide(code, approve=approve, now=self._clock())
        if decided is not None:
            self._wake()
        elif approve:
            decided = await self._approve_unseen(canonical(code))
        if decided is None:
            text = f"No page asks with that code (any more). To see which pages ask: {self._command} pairs"
            return _error(404, "unknown", text)
        log.info("%s: %s as %s", "paired" if approve else "refused", decided.origin, decided.server)
        if approve:
            self._on_paired(decided.server)
        answer = {"origin": decided.origin, "server": decided.server, "state": decided.state.value}
        return JSONResponse(answer, headers=NO_STORE)

    async def _approve_unseen(self, code: str) -> PairingRequest | None:
        """Approve a request that is not in the list, which is short: the page that shows the code collects its token
        within COLLECT_S, or the approval is withdrawn."""
        if len(self._collecting) >= MAX_COLLECTING or not self._pairing.approve_unseen(code, self._clock()):
            return None
        collecting: asyncio.Future[PairingRequest] = asyncio.get_running_loop().create_future()
        self._collecting[code] = collecting
        self._wake()
        try:
            async with asyncio.timeout(self._collect_s):
                return await collecting
        except TimeoutError:
            return None
        finally:
            del self._collecting[code]
            # defence: an approval of a code that no page has
            self._pairing.withdraw(code)

    def _paired_for(self, server: str, besides: str) -> list[str]:
        found = {grant.origin for grant in self._tokens.issued() if grant.servers and server in grant.servers}
        return sorted(origin for origin in found if origin is not None and origin != besides)


def _origin(request: Request) -> str:
    """Several Origin headers count as none, as in the gate."""
    # defence: two Origin headers of a page that asks
    return ", ".join(value.strip() for value in request.headers.getlist("origin"))


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    return value if isinstance(value, str) else ""


def _exact(origin: str) -> str:
    """A token is bound to the exact text of Origin, so that text must be in the form that browsers send."""
    if parse_origin(origin) != origin:
        raise PolicyError("The Origin is not written the way a browser writes it.")
    return origin


def _not_stored(problem: OSError | StateError) -> Response:
    """507 (RFC 4918 §11.5). The code or the approval stays valid."""
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else "its directory can't be used"
    log.error("A page's token can't be stored: %s", problem)
    why = f"The relay can't store this page's token ({reason})."
    headers = {**NO_STORE, "Retry-After": "5"}
    text = f"{why} Free some disk space; the page tries again."
    return problem_response(507, "not_stored", text, headers, retry_s=5)


def _error(status: int, reason: str, message: str) -> Response:
    return problem_response(status, reason, message, NO_STORE)


async def _json_object(request: Request) -> dict[str, Any] | Response:
    try:
        return await read_object(request, MAX_BODY)
    except BadRequest as error:
        return _error(error.status, error.reason, error.message)
