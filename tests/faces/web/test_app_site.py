"""The app's address: which files and routes of the app and of the relay it serves, and which it never does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tabrelay.assets.app_folder import AppFolder
from tabrelay.faces.web.app_site import EVENTS, MOST_STREAMS, AppSite
from tests.support.asgi_client import Answer, http_scope, request

HOST = ("Host", "127.0.0.1:4747")


class FakeRelayRoutes:
    """Stands in for the relay: answers every request and reports that it was reached."""

    fast_path = "the fast path"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("the relay")(scope, receive, send)


class App:
    def __init__(self, folder: Path) -> None:
        self.is_stopping, self.folder = False, folder
        (folder / "index.html").write_text("<p>app")
        (folder / "tools.py").write_text("x = 1\n")
        hosts = frozenset({"127.0.0.1:4747", "localhost:4747"})
        self.site = AppSite(
            FakeRelayRoutes(),
            AppFolder(folder),
            port=4747,
            hosts=hosts,
            relay_url="http://127.0.0.1:4748",
            is_stopping=lambda: self.is_stopping,
            servers=("declared",),
        )

    async def get(self, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
        return await request(self.site, method, path, [HOST, *headers])


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path)


async def test_the_apps_files_are_served_and_cached_by_their_tag(app: App) -> None:
    page = await app.get("/")
    assert page.status == 200 and page.body.startswith(b"<p>app")
    assert page.header("cross-origin-resource-policy") == "same-origin"
    assert page.header("x-content-type-options") == "nosniff" and page.header("cache-control") == "no-cache"
    tag = page.header("etag") or ""
    again = await app.get("/", ("If-None-Match", f"W/{tag}"))
    assert (again.status, again.body) == (304, b"")
    assert (await app.get("/", method="HEAD")).status == 200


async def test_a_file_that_is_not_there_is_answered_with_a_hint(app: App) -> None:
    missing = await app.get("/tool.py")
    assert missing.status == 404 and b"Did you mean tools.py?" in missing.body
    other = await app.get("/%3Cscript%3E")
    assert b"Its folder has: index.html, tools.py" in other.body and b"<script>" not in other.body


async def test_a_page_without_an_icon_causes_no_error_in_the_console(app: App) -> None:
    none = await app.get("/favicon.ico")
    assert (none.status, none.body) == (204, b"")
    (app.folder / "favicon.ico").write_bytes(b"icon")
    own = await app.get("/favicon.ico")
    assert (own.status, own.body) == (200, b"icon")


async def test_a_person_who_opens_an_mcp_address_gets_the_relays_page_about_it(app: App, tmp_path: Path) -> None:
    browser = ("Accept", "text/html,*/*")
    assert (await app.get("/notes", browser)).status == 404
    (tmp_path / "index.html").write_text('<script>connect({ server: "notes" })</script>')
    for name in ("notes", "declared"):
        there = await app.get(f"/{name}", browser)
        assert (there.status, there.header("location")) == (303, f"http://127.0.0.1:4748/{name}")
    assert (await app.get("/notes")).status == 404, "not for programs"
    assert b"Did you mean tools.py?" in (await app.get("/tool.py", browser)).body
    (tmp_path / "notes").write_text("the app's own")
    assert (await app.get("/notes", browser)).body == b"the app's own"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/-/client.js"),
        ("GET", "/-/worker.js"),
        ("GET", "/-/healthz"),
        ("GET", "/-/manifest.json"),
        ("GET", "/-/pyodide/pyodide.mjs"),
        ("GET", "/-/tabrelay.js"),
        ("POST", "/-/ask"),
        ("POST", "/-/ask/answer"),
        ("POST", "/-/prove"),
        ("GET", "/-/probe/notes"),
        ("GET", "/.well-known/oauth-protected-resource/notes"),
        ("POST", "/notes"),
        ("DELETE", "/notes"),
        ("OPTIONS", "/notes"),
    ],
)
async def test_the_relay_answers_what_pages_of_any_origin_may_ask(app: App, method: str, path: str) -> None:
    assert (await app.get(path, method=method)).body == b"the relay"


async def test_an_event_stream_of_a_server_is_the_relays_and_a_file_of_that_name_the_apps(app: App) -> None:
    accept = ("Accept", "text/event-stream")
    assert (await app.get("/notes", accept)).body == b"the relay"
    assert (await app.get("/notes/sse", accept)).body == b"the relay"
    assert (await app.get("/tools.py", accept)).body == b"x = 1\n"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/-/status"),
        ("GET", "/-/pairs"),
        ("POST", "/-/pairs"),
        ("POST", "/-/codes"),
        ("POST", "/-/pair"),
        ("GET", "/-/calls"),
        ("GET", "/-/metrics"),
        ("GET", "/-/demo/"),
        ("GET", "/-/page/page.js"),
        ("POST", "/-/upstreams/x/reconnect"),
        ("GET", "/-/anything"),
        ("GET", "/-"),
        ("GET", "/.env"),
    ],
)
async def test_the_relays_own_pages_and_routes_are_not_on_the_apps_origin(app: App, method: str, path: str) -> None:
    answer = await app.get(path, method=method)
    assert answer.status == 404 and b"The relay's own pages are at http://127.0.0.1:4748/" in answer.body


async def test_a_client_on_this_origin_does_not_take_it_for_the_relays_own(app: App) -> None:
    for path in ("/-/build.js", "/-/retry/3/build.js", "/-/assets/js-0123456789abcdef/build.js"):
        build = await app.get(path)
        assert b"export const SERVES_APP = true;" in build.body and b'export const BUILD = "";' in build.body


@pytest.mark.parametrize("hosts", [[], ["evil.example:4747"], ["127.0.0.1:4748"], ["127.0.0.1:4747"] * 2])
async def test_under_another_name_nothing_is_served(app: App, hosts: list[str]) -> None:
    for path in ("/", "/-/client.js", "/notes"):
        answer = await request(app.site, "GET", path, [("Host", host) for host in hosts])
        assert answer.status == 421


async def test_another_port_and_websockets_are_the_relays(app: App) -> None:
    scope: dict[str, Any] = http_scope("GET", "/", [HOST]) | {"server": ("127.0.0.1", 4748)}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.site(scope, receive, send)
    assert sent[1]["body"] == b"the relay"
    assert app.site.fast_path == "the fast path"


async def test_the_number_of_streams_of_changes_is_bounded_and_end_with_the_relay(app: App) -> None:
    app.is_stopping = True
    ended = await app.get(EVENTS)
    assert ended.header("content-type") == "text/event-stream; charset=utf-8" and b"event: run\n" in ended.body
    app.site._streams = MOST_STREAMS
    assert (await app.get(EVENTS)).status == 503


async def test_streams_that_are_asked_for_at_the_same_moment_are_so_many_too(app: App) -> None:
    app.is_stopping = True
    answers = await asyncio.gather(*(app.get(EVENTS) for _ in range(MOST_STREAMS + 3)))
    assert sorted(answer.status for answer in answers) == [200] * MOST_STREAMS + [503] * 3
    assert (await app.get(EVENTS)).status == 200


async def test_what_can_not_be_read_is_answered_with_the_reason(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    (app.folder / "circle").symlink_to(app.folder / "circle")
    assert (await app.get("/circle")).status == 404 and (await app.get("/circle/x")).status == 404
    assert (await app.get("/" + "a" * 900)).status == 404

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    answer = await app.get("/tools.py")
    assert answer.status == 404 and b"Permission denied" in answer.body


async def test_a_long_name_is_not_compared(app: App) -> None:
    (app.folder / ("a" * 200)).write_text("")
    assert b"Did you mean" not in (await app.get("/" + "a" * 199)).body
