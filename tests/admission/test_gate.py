"""The gate: in this process with raw headers, and on a real port where the HTTP status matters."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tabrelay.admission.gate import Gate
from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import Tokens
from tabrelay.calls.principal import Principal
from tests.support.asgi_client import Answer, dial, request

HOST = ("Host", "127.0.0.1:4747")
OWN = "http://127.0.0.1:4747"
ALLOWED = "https://app.example"
BAD_ORIGINS = ["https://evil.example", "null", f"{OWN}.evil.example", "http://127.0.0.1:4748"]

SHARED = ["/-/healthz", "/-/manifest.json", "/-/assets/js-0/worker.js", "/-/worker.js", "/-/client.js"]
SHARED += ["/-/client.d.ts", "/-/tabserver.zip", "/-/tabrelay.tgz", "/-/pyodide/pyodide.mjs", "/-/pyscript/core.js"]
SHARED += ["/-/micropython/micropython.mjs", "/-/micropython/tabserver.py"]
SHARED += ["/-/tabrelay.js", "/-/retry/1/client.js", "/-/retry/20/pyscript/core.js"]
PAGES = ["/", "/-/demo", "/-/demo/", "/-/demo/tools.py", "/-/page/page.js", "/favicon.ico", "/.well-known/x"]
# At "/" is the socket of widgets, which checks the origin itself.
NO_SOCKETS = [path for path in PAGES if path != "/"]
CLOSED = [
    "/demo",
    "/demo/sse",
    "/-/status",
    "/-/codes",
    "/-/probe/demo",
    "/-/pairs",
    "/-/",
    "/-/new",
    "/-/demo.html",
    "/-/retry/1/status",
    "/-/retry/1/demo/",
    "/-/retry/1/retry/1/client.js",
    "/--/x",
    "//x",
]


class RecordingApp:
    """Application behind the gate: answers all requests and records their scopes."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            chosen = scope["subprotocols"][0] if scope["subprotocols"] else None
            await send({"type": "websocket.accept", "subprotocol": chosen})
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"inside"})


class GatedApp:
    """A gate with a recording application, and tokens of every kind."""

    def __init__(self, home: Path, port: int = 4747, no_auth: bool = False, plain: Sequence[str] = ()) -> None:
        self.app = RecordingApp()
        self.tokens = Tokens(home)
        self.master = self.tokens.master()
        self.serve = self.tokens.issue_for_page(OWN, None, ["serve"])
        self.serve_notes = self.tokens.issue_for_page(OWN, "notes", ["serve"])
        policy = Policy.for_address("127.0.0.1", port, allow_origins=[ALLOWED])
        self.gate = Gate(
            self.app, policy, self.tokens, no_auth=no_auth, plain=frozenset(plain), command="/opt/bin/tabrelay"
        )

    async def ask(self, method: str, path: str, *headers: tuple[str, str], token: str | None = None) -> Answer:
        extra = [("Authorization", f"Bearer {token}")] if token else []
        return await request(self.gate, method, path, [HOST, *headers, *extra])


@pytest.fixture
def gated(tmp_path: Path) -> GatedApp:
    return GatedApp(tmp_path / "state")


def bearer(token: str) -> str:
    return "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


@pytest.mark.parametrize("path", SHARED + PAGES)
async def test_what_is_public_by_name_needs_no_token(gated: GatedApp, path: str) -> None:
    assert (await gated.ask("GET", path)).status == 200
    assert (await gated.ask("HEAD", path)).status == 200


@pytest.mark.parametrize("path", SHARED + PAGES)
async def test_what_is_public_is_so_for_reading_only(gated: GatedApp, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert (await gated.ask(method, path)).status == 401


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
async def test_every_other_route_is_closed_without_a_token(gated: GatedApp, method: str, path: str) -> None:
    answer = await gated.ask(method, path)
    assert answer.status == 401
    challenge = answer.header("www-authenticate")
    assert challenge is not None
    assert challenge.startswith('Bearer realm="tabrelay"')
    assert gated.app.scopes == []


@pytest.mark.parametrize("path", PAGES + CLOSED + ["/-/pair"])
@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_no_route_but_the_shared_files_is_open_to_another_origin(gated: GatedApp, path: str, origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        preflight = ("Access-Control-Request-Method", "POST")
        answer = await gated.ask(method, path, ("Origin", origin), preflight, token=gated.master)
        assert answer.status == 403
        assert answer.header("access-control-allow-origin") is None
    assert gated.app.scopes == []


@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_the_worker_can_be_imported_from_any_origin(gated: GatedApp, origin: str) -> None:
    for path in SHARED:
        assert (await gated.ask("GET", path, ("Origin", origin))).status == 200


@pytest.mark.parametrize("path", SHARED + PAGES + CLOSED)
@pytest.mark.parametrize(
    "hosts",
    [[], ["evil.example:4747"], ["localhost.evil:4747"], ["localhost.:4747"], ["127.0.0.1:80"], ["127.0.0.1:4747"] * 2],
)
async def test_under_another_name_nothing_is_served_at_all(gated: GatedApp, path: str, hosts: list[str]) -> None:
    headers = [("Host", host) for host in hosts] + [("Authorization", f"Bearer {gated.master}")]
    assert (await request(gated.gate, "GET", path, headers)).status == 421
    assert (await dial(gated.gate, path, headers)).status == 421
    assert gated.app.scopes == []


async def test_two_origin_headers_are_as_bad_as_a_foreign_one(gated: GatedApp) -> None:
    answer = await gated.ask("POST", "/demo", ("Origin", OWN), ("Origin", OWN), token=gated.master)
    assert answer.status == 403


async def test_blanks_around_header_values_do_not_count(gated: GatedApp) -> None:
    headers = [("Host", " 127.0.0.1:4747\t"), ("Origin", f"{OWN} "), ("Authorization", f" Bearer  {gated.master} ")]
    assert (await request(gated.gate, "POST", "/demo", headers)).status == 200


async def test_a_caller_comes_in_with_the_token_and_gets_a_principal(gated: GatedApp) -> None:
    answer = await gated.ask("POST", "/demo", token=gated.master)
    assert (answer.status, answer.body) == (200, b"inside")
    principal = gated.app.scopes[0]["state"]["principal"]
    assert principal == gated.tokens.identify(gated.master, None)


async def test_a_stale_principal_never_gets_through_a_public_route(gated: GatedApp) -> None:
    await gated.ask("GET", "/")
    assert gated.app.scopes[0]["state"]["principal"] is None


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "Bearer nonsense", "Basic {0}", "{0}", "Bearer {0}x", "Bearer {0}, Bearer {0}"]
)
async def test_a_bad_authorization_is_unauthorized(gated: GatedApp, value: str) -> None:
    answer = await gated.ask("POST", "/demo", ("Authorization", value.format(gated.master)))
    assert answer.status == 401
    assert 'error="invalid_token"' in (answer.header("www-authenticate") or "")


async def test_two_authorization_headers_are_refused_even_if_one_is_right(gated: GatedApp) -> None:
    right, wrong = ("Authorization", f"Bearer {gated.master}"), ("Authorization", "Bearer x")
    for both in ((right, wrong), (wrong, right), (right, right)):
        assert (await gated.ask("POST", "/demo", *both)).status == 401
    entries = ["tabrelay.v1", bearer(gated.master), bearer("x")]
    assert not (await dial(gated.gate, "/demo", [HOST], entries)).is_accepted


async def test_a_token_in_the_query_is_no_token(gated: GatedApp) -> None:
    assert (await gated.ask("POST", f"/demo?token={gated.master}")).status == 401


async def test_a_pages_token_may_serve_and_look_but_not_call(gated: GatedApp) -> None:
    own = ("Origin", OWN)
    assert (await gated.ask("POST", "/demo", own, token=gated.serve)).status == 403
    assert (await gated.ask("GET", "/-/status", own, token=gated.serve)).status == 200
    assert (await gated.ask("GET", "/-/probe/demo", own, token=gated.serve)).status == 200
    assert (await dial(gated.gate, "/demo", [HOST, own], ["tabrelay.v1", bearer(gated.serve)])).is_accepted


async def test_only_the_token_files_token_mints_codes(gated: GatedApp) -> None:
    assert (await gated.ask("POST", "/-/codes", token=gated.serve)).status == 403
    assert (await gated.ask("POST", "/-/codes", token=gated.master)).status == 200


async def test_the_probe_distinguishes_a_bad_token_a_wrong_origin_and_a_wrong_server(gated: GatedApp) -> None:
    assert (await gated.ask("GET", "/-/probe/demo", ("Origin", OWN), token="tr_unknown")).status == 401
    wrong_origin = await gated.ask("GET", "/-/probe/demo", ("Origin", ALLOWED), token=gated.serve)
    assert wrong_origin.status == 403
    assert "another origin" in wrong_origin.json()["message"]
    wrong_server = await gated.ask("GET", "/-/probe/demo", ("Origin", OWN), token=gated.serve_notes)
    assert wrong_server.status == 403
    assert '"notes"' in wrong_server.json()["message"]
    assert (await gated.ask("GET", "/-/probe/notes", ("Origin", OWN), token=gated.serve_notes)).status == 200


async def test_a_refusal_on_a_server_is_a_json_rpc_error(gated: GatedApp) -> None:
    answer = await gated.ask("POST", "/demo")
    body = answer.json()
    assert answer.header("content-type") == "application/json"
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32600)
    assert body["error"]["data"] == {
        "reason": "unauthorized",
        "delivered": "no",
        "retryable": False,
        "server": "demo",
        "help": "TR201",
    }
    assert "tabrelay token" in body["error"]["message"]


async def test_only_programs_and_own_pages_get_the_path_of_the_installation(gated: GatedApp) -> None:
    for headers in ([], [("Origin", OWN)]):
        answer = await gated.ask("GET", "/-/probe/demo", *headers, token="tr_unknown")
        assert "/opt/bin/tabrelay pair" in answer.json()["message"]
    for token in ("tr_unknown", gated.serve):
        answer = await gated.ask("GET", "/-/probe/demo", ("Origin", ALLOWED), token=token)
        assert "Pair this page" in answer.json()["message"] and "tabrelay pair" in answer.json()["message"]
        assert "/opt" not in answer.json()["message"]


async def test_a_refusal_of_another_route_is_a_plain_error(gated: GatedApp) -> None:
    assert set((await gated.ask("GET", "/-/status")).json()) == {"error", "message", "help"}


async def test_nothing_behind_the_gate_sees_a_token(gated: GatedApp) -> None:
    secret = bearer(gated.master)
    headers = [HOST, ("Sec-WebSocket-Protocol", f"tabrelay.v1, {secret}")]
    await dial(gated.gate, "/demo", headers, ["tabrelay.v1", secret])
    await gated.ask("POST", "/demo", token=gated.master)
    assert gated.app.scopes[0]["subprotocols"] == ["tabrelay.v1"]
    shown = repr(gated.app.scopes)
    assert gated.master not in shown
    assert secret not in shown


@pytest.mark.parametrize("path", CLOSED + NO_SOCKETS + SHARED + ["/-/pair"])
async def test_no_websocket_is_open_without_a_token(gated: GatedApp, path: str) -> None:
    for origin in ([], [("Origin", OWN)]):
        answer = await dial(gated.gate, path, [HOST, *origin], ["tabrelay.v1"])
        assert answer.status == 401
    assert gated.app.scopes == []


@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_no_websocket_is_open_to_another_origin(gated: GatedApp, origin: str) -> None:
    answer = await dial(gated.gate, "/demo", [HOST, ("Origin", origin)], ["tabrelay.v1", bearer(gated.master)])
    assert answer.status == 403


@pytest.mark.parametrize("entries", [["bearer."], ["bearer.!!"], ["bearer.w7w"], ["bearer.YQ", "bearer.YQ"]])
async def test_a_malformed_bearer_entry_is_unauthorized(gated: GatedApp, entries: list[str]) -> None:
    assert (await dial(gated.gate, "/demo", [HOST], ["tabrelay.v1", *entries])).status == 401


async def test_a_program_may_dial_with_an_authorization_header(gated: GatedApp) -> None:
    headers = [HOST, ("Authorization", f"Bearer {gated.master}")]
    assert (await dial(gated.gate, "/demo", headers, ["tabrelay.v1"])).is_accepted


async def test_a_server_that_cannot_answer_a_handshake_closes_with_our_code(gated: GatedApp) -> None:
    assert (await dial(gated.gate, "/demo", [HOST], can_answer=False)).close_code == 4401
    foreign = [HOST, ("Origin", "null")]
    assert (await dial(gated.gate, "/demo", foreign, can_answer=False)).close_code == 4403


async def test_an_allowed_origin_gets_cors_on_answers_and_on_refusals(gated: GatedApp) -> None:
    for token in (gated.master, None):
        for path in ("/demo", "/-/status", "/-/probe/demo"):
            answer = await gated.ask("GET", path, ("Origin", ALLOWED), token=token)
            assert answer.header("access-control-allow-origin") == ALLOWED
            assert "Mcp-Session-Id" in (answer.header("access-control-expose-headers") or "")
            assert "WWW-Authenticate" in (answer.header("access-control-expose-headers") or "")
            assert "Origin" in (answer.header("vary") or "")
            assert answer.header("access-control-allow-credentials") is None


async def test_a_preflight_of_an_allowed_origin_names_the_mcp_headers(gated: GatedApp) -> None:
    wanted = ("Access-Control-Request-Headers", "mcp-param-city, x-evil, mcp-method,mcp-param-a b")
    method = ("Access-Control-Request-Method", "POST")
    answer = await gated.ask("OPTIONS", "/demo", ("Origin", ALLOWED), method, wanted)
    assert answer.status == 204
    allowed = (answer.header("access-control-allow-headers") or "").lower().split(", ")
    for name in ("content-type", "accept", "authorization", "mcp-protocol-version", "mcp-method", "mcp-name"):
        assert name in allowed
    assert {"mcp-session-id", "last-event-id", "mcp-param-city"} <= set(allowed)
    assert not {"x-evil", "mcp-param-a b"} & set(allowed)
    assert answer.header("access-control-allow-methods") == "GET, POST, DELETE"
    assert gated.app.scopes == []


async def test_codes_have_no_cors_for_any_origin(gated: GatedApp) -> None:
    method = ("Access-Control-Request-Method", "POST")
    assert (await gated.ask("OPTIONS", "/-/codes", ("Origin", ALLOWED), method)).status == 401
    answer = await gated.ask("POST", "/-/codes", ("Origin", ALLOWED), token=gated.master)
    assert answer.header("access-control-allow-origin") is None


async def test_every_answer_has_the_safe_headers_without_doubling_the_apps(gated: GatedApp) -> None:
    for answer in (await gated.ask("POST", "/demo", token=gated.master), await gated.ask("POST", "/demo")):
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("referrer-policy") == "no-referrer"
    assert (await gated.ask("POST", "/demo", token=gated.master)).header("cache-control") == "no-cache"
    assert (await gated.ask("POST", "/demo")).header("cache-control") == "no-store"


async def test_without_auth_host_and_origin_still_count_and_codes_stay_closed(tmp_path: Path) -> None:
    gated = GatedApp(tmp_path / "state", no_auth=True)
    assert (await gated.ask("POST", "/demo")).status == 200
    assert (await dial(gated.gate, "/demo", [HOST, ("Origin", OWN)], ["tabrelay.v1"])).is_accepted
    assert gated.app.scopes[0]["state"]["principal"].id == "anyone"  # style: ok (an id)
    assert (await gated.ask("POST", "/demo", ("Origin", "https://evil.example"))).status == 403
    assert (await request(gated.gate, "POST", "/demo", [("Host", "evil.example")])).status == 421
    assert (await gated.ask("POST", "/-/codes")).status == 403


@pytest.fixture
def plain_house(tmp_path: Path) -> GatedApp:
    """Pages without a token may serve "notes"."""
    return GatedApp(tmp_path / "state", plain=["notes"])


@pytest.mark.parametrize("origin", [OWN, ALLOWED])
@pytest.mark.parametrize("entries", [[], ["mcp"], ["mcp", "other"]])
async def test_a_plain_server_takes_pages_by_their_origin(
    plain_house: GatedApp, origin: str, entries: list[str]
) -> None:
    assert (await dial(plain_house.gate, "/notes?tab=1", [HOST, ("Origin", origin)], entries)).is_accepted
    principal = plain_house.app.scopes[0]["state"]["principal"]
    assert principal == Principal(f"origin:{origin}", frozenset({"serve"}), origin, frozenset({"notes"}))


@pytest.mark.parametrize("path", [*CLOSED, *NO_SOCKETS, *SHARED, "/notes/", "/notes/x"])
async def test_a_plain_server_opens_no_other_path(plain_house: GatedApp, path: str) -> None:
    for entries in ([], ["mcp"]):
        assert (await dial(plain_house.gate, path, [HOST, ("Origin", OWN)], entries)).status == 401
    assert plain_house.app.scopes == []


async def test_a_plain_server_is_not_open_to_http(plain_house: GatedApp) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert (await plain_house.ask(method, "/notes", ("Origin", OWN))).status == 401
    assert (await plain_house.ask("GET", "/-/probe/notes", ("Origin", OWN))).status == 401


@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_a_plain_server_takes_no_page_of_another_origin(plain_house: GatedApp, origin: str) -> None:
    assert (await dial(plain_house.gate, "/notes", [HOST, ("Origin", origin)], ["mcp"])).status == 403
    two = [HOST, ("Origin", OWN), ("Origin", OWN)]
    assert (await dial(plain_house.gate, "/notes", two, ["mcp"])).status == 403


async def test_a_plain_server_takes_no_page_under_another_name_of_the_relay(plain_house: GatedApp) -> None:
    assert (await dial(plain_house.gate, "/notes", [("Host", "evil.example:4747"), ("Origin", OWN)])).status == 421


async def test_a_plain_server_asks_programs_and_links_for_a_token_as_before(plain_house: GatedApp) -> None:
    own = ("Origin", OWN)
    assert (await dial(plain_house.gate, "/notes", [HOST], ["mcp"])).status == 401
    assert (await dial(plain_house.gate, "/notes", [HOST, own], ["tabrelay.v1"])).status == 401
    assert (await dial(plain_house.gate, "/notes", [HOST, own], ["tabrelay.v1", "mcp"])).status == 401


async def test_a_bad_token_is_not_better_than_none(plain_house: GatedApp) -> None:
    own = ("Origin", OWN)
    assert (await dial(plain_house.gate, "/notes", [HOST, own], ["mcp", "bearer.YQ"])).status == 401
    foreign = bearer(plain_house.tokens.issue_for_page(ALLOWED, None, ["serve"]))
    assert (await dial(plain_house.gate, "/notes", [HOST, own], ["mcp", foreign])).status == 403


async def test_a_page_with_a_token_is_that_tokens_principal(plain_house: GatedApp) -> None:
    own = ("Origin", OWN)
    assert (await dial(plain_house.gate, "/notes", [HOST, own], ["mcp", bearer(plain_house.serve)])).is_accepted
    assert plain_house.app.scopes[0]["state"]["principal"].id == f"page:{OWN}"


# -- pages of an origin that is not listed, but was paired

PAIRED = "https://paired.example"


@pytest.fixture
def paired(gated: GatedApp) -> str:
    """The token of a page that was paired for "notes"."""
    return gated.tokens.issue_for_page(PAIRED, "notes", ["serve"])


def from_paired(*headers: tuple[str, str]) -> list[tuple[str, str]]:
    return [HOST, ("Origin", PAIRED), *headers]


async def test_a_paired_page_may_serve_its_name_and_ask_why_it_may_not(gated: GatedApp, paired: str) -> None:
    assert (await dial(gated.gate, "/notes", from_paired(), ["tabrelay.v1", bearer(paired)])).is_accepted
    answer = await gated.ask("GET", "/-/probe/notes", ("Origin", PAIRED), token=paired)
    assert (answer.status, answer.header("access-control-allow-origin")) == (200, PAIRED)
    other = await gated.ask("GET", "/-/probe/other", ("Origin", PAIRED), token=paired)
    assert (other.status, other.header("access-control-allow-origin")) == (403, PAIRED)
    assert (await dial(gated.gate, "/other", from_paired(), ["tabrelay.v1", bearer(paired)])).status == 403


async def test_a_paired_origin_is_worth_nothing_without_its_own_token(gated: GatedApp, paired: str) -> None:
    for token in (None, gated.master, gated.serve, gated.serve_notes, "tr_unknown"):
        entries = ["tabrelay.v1", *([bearer(token)] if token else [])]
        assert (await dial(gated.gate, "/notes", from_paired(), entries)).status == 401
        assert (await gated.ask("GET", "/-/probe/notes", ("Origin", PAIRED), token=token)).status == 401
    assert gated.app.scopes == []


@pytest.mark.parametrize("path", ["/notes", "/notes/sse", "/-/status", "/-/codes", "/-/pairs", "/-/pair", "/"])
async def test_a_paired_page_may_do_nothing_else(gated: GatedApp, paired: str, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        for token in (paired, gated.master):
            answer = await gated.ask(method, path, ("Origin", PAIRED), token=token)
            assert answer.status == 403
            assert answer.header("access-control-allow-origin") is None
    assert gated.app.scopes == []


async def test_a_page_whose_pairing_was_revoked_is_no_longer_admitted(gated: GatedApp, paired: str) -> None:
    gated.tokens.revoke(lambda grant: grant.origin == PAIRED)
    assert (await dial(gated.gate, "/notes", from_paired(), ["tabrelay.v1", bearer(paired)])).status == 403


async def test_a_paired_origin_gets_nothing_more_where_no_token_is_asked_for(tmp_path: Path) -> None:
    gated = GatedApp(tmp_path / "state", no_auth=True, plain=["notes"])
    gated.tokens.issue_for_page(PAIRED, "notes", ["serve"])
    for entries in (["tabrelay.v1"], ["mcp"], []):
        assert (await dial(gated.gate, "/notes", from_paired(), entries)).status == 401
    assert (await gated.ask("POST", "/notes", ("Origin", PAIRED))).status == 403


@pytest.mark.parametrize("path", ["/-/ask", "/-/ask/answer"])
async def test_any_page_may_ask_and_nothing_more_than_that(gated: GatedApp, path: str) -> None:
    stranger = ("Origin", "https://stranger.example")
    answer = await gated.ask("POST", path, stranger)
    assert (answer.status, answer.header("access-control-allow-origin")) == (200, stranger[1])
    assert gated.app.scopes[0]["state"]["principal"] is None
    method = ("Access-Control-Request-Method", "POST")
    assert (await gated.ask("OPTIONS", path, stranger, method)).status == 204
    for other in ("GET", "PUT", "DELETE"):
        assert (await gated.ask(other, path, stranger)).status == 401
    assert (await gated.ask("POST", path, ("Origin", "null"))).status == 403
    assert (await request(gated.gate, "POST", path, [("Host", "evil.example"), stranger])).status == 421
    assert (await dial(gated.gate, path, [HOST, stranger], ["tabrelay.v1"])).status in (401, 403)


async def test_start_and_stop_of_the_application_pass_through(gated: GatedApp) -> None:
    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        raise AssertionError

    await gated.gate({"type": "lifespan"}, receive, send)
    assert gated.app.scopes == [{"type": "lifespan"}]


@asynccontextmanager
async def listening(home: Path) -> AsyncIterator[tuple[GatedApp, int]]:
    """The gate on a real port, with the protocols the relay uses."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        gated = GatedApp(home, port)
        config = uvicorn.Config(gated.gate, http="httptools", ws="websockets-sansio", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup([sock])
        try:
            yield gated, port
        finally:
            await server.shutdown()


async def refused_with(port: int, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(f"ws://127.0.0.1:{port}/demo", **options):
            pass
    return int(caught.value.response.status_code)


async def test_a_real_browser_handshake_is_refused_before_the_101_with_its_status(tmp_path: Path) -> None:
    async with listening(tmp_path / "state") as (gated, port):
        entries = [Subprotocol("tabrelay.v1"), Subprotocol(bearer(gated.master))]
        own: Any = f"http://127.0.0.1:{port}"
        foreign: Any = "https://evil.example"
        assert await refused_with(port, subprotocols=entries[:1]) == 401
        assert await refused_with(port, subprotocols=entries, origin=foreign) == 403
        assert await refused_with(port, subprotocols=entries, additional_headers={"Host": "evil.example"}) in (400, 421)
        async with connect(f"ws://127.0.0.1:{port}/demo", subprotocols=entries, origin=own) as ws:
            assert ws.subprotocol == "tabrelay.v1"


async def test_a_rebound_name_is_misdirected_on_a_real_port(tmp_path: Path) -> None:
    async with listening(tmp_path / "state") as (_, port):
        for host in ("evil.example", f"localhost.evil:{port}", f"localhost.:{port}"):
            for upgrade in ("", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                writer.write(f"GET /demo HTTP/1.1\r\nHost: {host}\r\n{upgrade}{key}\r\n".encode())
                status = await asyncio.wait_for(reader.readline(), 10)
                writer.close()
                await writer.wait_closed()
                assert status.startswith(b"HTTP/1.1 421 ")
