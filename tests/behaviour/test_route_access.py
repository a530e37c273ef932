"""Access to every route of the real application: without a token, only the routes that this file lists can be used.

The routes are read from the application: a new one that is not listed here must be closed, or these tests fail.
"""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from tabrelay.admission.gate import Gate
from tabrelay.admission.tokens import Tokens
from tabrelay.config.settings import Settings
from tabrelay.server.app import create_app
from tests.support.asgi_client import Answer, dial, request

Header = tuple[str, str]

OWN = "http://127.0.0.1:4747"
HOST = ("Host", "127.0.0.1:4747")
REACHED = 299
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]
STRANGERS = {
    "foreign": "https://evil.example",
    "opaque": "null",
    "suffix": f"{OWN}.evil.example",
    "prefix": "http://evil127.0.0.1:4747",
    "another port": "http://127.0.0.1:4748",
    "another scheme": "https://127.0.0.1:4747",
    "another host": "http://localhost.:4747",
    "several": f"{OWN}, {OWN}",
}

READ = {"GET", "HEAD"}
# Path template -> the origins that need no token, and their methods.
FOR_EVERY_ORIGIN = {
    "/-/healthz": READ,
    "/-/manifest.json": READ,
    "/-/client.js": READ,
    "/-/tabrelay.js": READ,
    "/-/retry/1/client.js": READ,
    "/-/assets/x/y": READ,
    # Scripts of a document with an opaque origin.
    "/-/demo/playground/frame/x": READ,
    # Where a token is obtained.
    "/.well-known/oauth-protected-resource": READ,
    "/.well-known/oauth-protected-resource/x": READ,
    "/.well-known/oauth-protected-resource/x/mcp": READ,
    "/.well-known/oauth-authorization-server": READ,
}
FOR_OUR_PAGES = {
    "/": READ,
    "/favicon.ico": READ,
    "/-/demo": READ,
    "/-/demo/x": READ,
    "/-/docs": READ,
    "/-/docs/x": READ,
    "/-/demo/playground": READ,
    "/-/demo/playground/": READ,
    "/-/page/x": READ,
    # The document in which the console shows an app: sandboxed, without an origin.
    "/-/page/app-frame": READ,
    "/-/pair": {"POST"},
    "/-/reports": {"POST"},
    "/.well-known/x": READ,
}
# A WebSocket that opens without a token: it is accepted only from a page that the user approves (test_widget_pages).
FOR_WIDGETS = "/"
FOR_ASKING = {"/-/ask": {"POST"}, "/-/ask/answer": {"POST"}, "/-/prove": {"POST"}}
# Paths without a FastAPI route: the servers, and paths that only give refusals.
OTHER_PATHS = [
    *("/notes", "/notes/", "/notes/mcp", "/notes/sse", "/notes/messages", "/notes/x", "/unknown"),
    *("/-", "/-/", "/-/client", "/-/assets/", "/-/assets", "/--/x", "//", "//-/healthz", "/-/../-/status", "/-/x/y.js"),
    *("/-/retry/1/client.js", "/-/retry/x/client.js", "/-/retry/1/status", "/-/retry/1/retry/1/client.js"),
    *("/-/client.js", "/-/assets/x/y", "/.well-known/x", "/-/healthz/", "/-/HEALTHZ", "/%2d/status"),
]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def app_and_paths(tokens: Tokens) -> tuple[Any, list[str]]:
    """The application as the product builds it, except that each route behind the gate only reports that it was
    reached; and its paths."""
    app: Any = create_app(Settings(home=tokens.home, port=4747, servers=("notes",)), tokens=tokens)
    gate = app
    while not isinstance(gate, Gate):
        gate = gate._app
    routes = [route.path for route in cast(Any, gate)._app._pages.routes if isinstance(route, APIRoute)]
    assert len(routes) > 10
    gate._app = reached
    # A value replaces each parameter.
    return app, sorted({re.sub(r"\{\w+(:path)?\}", "x", path) for path in routes} | set(OTHER_PATHS))


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    await send({"type": f"{kind}.response.start", "status": REACHED, "headers": []})
    await send({"type": f"{kind}.response.body", "body": b""})


@pytest.fixture(scope="module")
def app(app_and_paths: tuple[Any, list[str]]) -> Any:
    return app_and_paths[0]


@pytest.fixture(scope="module")
def places(app_and_paths: tuple[Any, list[str]]) -> list[str]:
    return app_and_paths[1]


@pytest.fixture(scope="module")
def token(tokens: Tokens) -> Header:
    return "Authorization", f"Bearer {tokens.master()}"


def is_in(answer: Answer) -> bool:
    # The gate itself answers a preflight, which permits the request that follows.
    return answer.status in (REACHED, 204)


async def test_without_a_token_nothing_is_open_that_is_not_listed(app: Any, places: list[str]) -> None:
    listed = FOR_EVERY_ORIGIN | FOR_OUR_PAGES | FOR_ASKING
    for path in places:
        for method in METHODS:
            for headers in ([], [("Origin", OWN)], [("Authorization", "Bearer tr_" + "x" * 43)]):
                answer = await request(app, method, path, [HOST, *headers])
                assert is_in(answer) == (method in listed.get(path, ())), f"{method} {path} {headers}: {answer.status}"


@pytest.mark.parametrize("origin", STRANGERS.values(), ids=STRANGERS)
async def test_another_origin_reads_shared_files_and_may_ask_and_nothing_else(
    app: Any, places: list[str], token: Header, origin: str
) -> None:
    listed = FOR_EVERY_ORIGIN if origin == "null" else FOR_EVERY_ORIGIN | FOR_ASKING
    for path in places:
        for method in METHODS:
            for headers in ([], [token]):
                answer = await request(app, method, path, [HOST, ("Origin", origin), *headers])
                assert is_in(answer) == (method in listed.get(path, ())), f"{method} {path}: {answer.status}"


async def test_no_path_takes_a_websocket_without_a_token_or_from_another_origin(
    app: Any, places: list[str], token: Header
) -> None:
    for path in places:
        if path == FOR_WIDGETS:
            continue
        assert (await dial(app, path, [HOST], ["tabrelay.v1"])).status == 401
        assert (await dial(app, path, [HOST, ("Origin", OWN)], ["tabrelay.v1", "mcp"])).status == 401
        for origin in STRANGERS.values():
            answer = await dial(app, path, [HOST, ("Origin", origin)], ["tabrelay.v1"])
            assert answer.status in (401, 403)
            assert (await dial(app, path, [HOST, ("Origin", origin), token], ["tabrelay.v1"])).status == 403


@pytest.mark.parametrize(
    "hosts",
    [
        *([], ["127.0.0.1:4747", "127.0.0.1:4747"], [""], ["evil.example"], ["evil.example:4747"], ["127.0.0.1"]),
        *(["127.0.0.1:4748"], ["localhost.:4747"], ["localhost.evil:4747"], ["127.0.0.1.nip.example:4747"]),
        *(["127.0.0.1:4747.evil.example"], ["[::1]:4748"], ["0.0.0.0:4747"], ["127.0.0.1:4747 evil"]),
        *(["2130706433:4747"], ["127.1:4747"]),
    ],
    ids=str,
)
async def test_under_a_rebound_or_odd_name_nothing_answers_at_all(
    app: Any, places: list[str], token: Header, hosts: list[str]
) -> None:
    headers = [*(("Host", host) for host in hosts), token]
    for path in places:
        for method in ("GET", "POST", "OPTIONS"):
            assert (await request(app, method, path, headers)).status == 421
        assert (await dial(app, path, headers, ["tabrelay.v1"])).status == 421


async def test_what_is_listed_exists(places: list[str]) -> None:
    """The list would become outdated if it could name paths that no longer exist."""
    assert set(FOR_EVERY_ORIGIN | FOR_OUR_PAGES | FOR_ASKING) <= set(places)
