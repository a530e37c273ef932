"""Host and origin names in unusual forms, as bytes on a real connection.

Only the exact names of the relay and of the admitted origins are accepted: over HTTP, on the fast path, in a request
after one that used it, and for a WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.asgi_client import Answer
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.raw_http import RawConnection
from tests.support.running_relay import ACCEPT, RunningRelay, modern
from tests.support.waiting import BOUND_S

Fields = list[tuple[str, str]]

ALLOWED = "https://app.example"
# PORT is replaced by the relay's own.
HOSTS = [
    *("127.0.0.1", "127.0.0.1:", "127.0.0.1:80", "127.0.0.1:443", "127.0.0.1:0PORT", "127.0.0.1:PORT:PORT"),
    *("127.0.0.1:PORT.", "127.0.0.1.:PORT", "localhost.:PORT"),
    *("LOCALHOST.:PORT", ".localhost:PORT", "localhost..:PORT"),
    *("127.1:PORT", "127.0.1:PORT", "0:PORT"),
    *("0177.0.0.1:PORT", "0x7f.0.0.1:PORT", "2130706433:PORT", "0.0.0.0:PORT"),
    *("::1:PORT", "[::1]", "[::1]:", "[0::1]:PORT"),
    *("[::1%25lo]:PORT", "[::ffff:7f00:1]:PORT", "[::1:PORT", "::1]:PORT"),
    *("user@127.0.0.1:PORT", "user:pw@localhost:PORT", "127.0.0.1:PORT@evil.example", "@127.0.0.1:PORT"),
    *("%31%32%37.0.0.1:PORT", "127%2e0%2e0%2e1:PORT", "localhost%00:PORT", "localhost%3aPORT", "127.0.0.1%3APORT"),
    *("localhost:PORT.evil.example", "evil.example:PORT", "localhost.evil.example:PORT", "notlocalhost:PORT"),
    *("evil-127.0.0.1:PORT", "127.0.0.1.nip.io:PORT"),
    *("xn--localhost-:PORT", "xn--lcalhost-n4a:PORT", "l\xf3calhost:PORT"),
    *("http://127.0.0.1:PORT", "//127.0.0.1:PORT", "127.0.0.1:PORT/", "127.0.0.1:PORT?", "127.0.0.1:PORT#", "/"),
    *("127.0.0.1:PORT,127.0.0.1:PORT", "127.0.0.1:PORT, evil.example"),
    *("127.0.0.1 :PORT", "127.0.0.1: PORT", "\"127.0.0.1:PORT\""),
    *("127.0.0.1:PORT evil.example", "evil.example 127.0.0.1:PORT", "127.0.0.1\xa0:PORT", "127.0.0.1:PORT\xa0", ""),
]  # fmt: skip
ORIGINS = [
    *("null", "NULL", "null ", "", "*", "file://", "about:blank", "data:", "chrome-extension://abc", "app.example"),
    *("https://APP.example", "HTTPS://app.example"),
    *("https://App.Example", "https://app.example.", "https://app.example/"),
    *("https://app.example:443", "https://app.example:0443", "https://app.example:", "https://app.example:8443"),
    *("http://app.example", "http://app.example:443"),
    *("wss://app.example", "https:app.example", "https:/app.example"),
    *("https://user@app.example", "https://app.example@evil.example"),
    *("https://user:pw@app.example", "https://@app.example"),
    *("https://app.example.evil.example", "https://evilapp.example"),
    *("https://evil.app.example", "https://app.example.com"),
    *("https://app%2eexample", "https://%61pp.example"),
    *("https%3A%2F%2Fapp.example", "https://app.example%00", "https://app.example%20"),
    *("https://app\u3002example".encode().decode("latin-1"), "https://\xe1pp.example"),
    *("https://xn--pp-mia.example", "https://app.example\xa0"),
    *("https://app.example https://app.example",),
    *("https://app.example, https://app.example", "https://app.example,"),
    *("https://app.example?x", "https://app.example#x"),
    *("https://app.example/..", "https://app.example;x", "\"https://app.example\""),
    *("http://127.0.0.1", "http://127.0.0.1:80"),
    *("https://127.0.0.1:PORT", "http://127.0.0.1:0PORT", "http://127.0.0.1:PORT."),
    *("http://localhost.:PORT", "http://[0::1]:PORT", "http://::1:PORT"),
    *("http://[::1]", "http://127.1:PORT", "http://0:PORT"),
]  # fmt: skip


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    home: Path = tmp_path_factory.mktemp("home")
    async with (
        RunningRelay(home, allow_origins=(ALLOWED,), rate_s=0) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
    ):
        yield relay


def written(method: str, path: str, fields: Fields, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def call(relay: RunningRelay, host: str, more: Fields) -> bytes:
    request = modern("tools/call", {"name": "echo", "arguments": {"n": 1}})
    body = orjson.dumps(request["json"])
    fields = [("Host", host), ("Authorization", f"Bearer {relay.token}"), ("Accept", ACCEPT), *more]
    fields += [*request["headers"].items(), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return written("POST", "/notes", fields, body)


def handshake(relay: RunningRelay, host: str, more: Fields) -> bytes:
    fields = [("Host", host), ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
    fields += [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), *more]
    return written("GET", "/page", [*fields, ("Sec-WebSocket-Protocol", f"tabrelay.v1, {bearer(relay.token)}")])


async def answers(relay: RunningRelay, host: str, more: Fields) -> dict[str, int | None]:
    """The statuses for this name on every path."""
    own = f"127.0.0.1:{relay.port}"
    ways: dict[str, list[bytes]] = {
        "status": [written("GET", "/-/status", [("Host", host), ("Authorization", f"Bearer {relay.token}"), *more])],
        "call": [call(relay, host, more)],
        # On a connection whose last request took the fast path, and whose header block it starts with.
        "call again": [call(relay, own, []), call(relay, own, []), call(relay, host, more)],
    }
    found = {way: await last_status(relay, requests) for way, requests in ways.items()}
    return {**found, "socket": await first_status(relay, handshake(relay, host, more))}


async def last_status(relay: RunningRelay, requests: list[bytes]) -> int | None:
    line = await RawConnection(relay.port).open()
    answer: Answer | None = None
    for request in requests:
        line.send(request)
        answer = await line.answer()
    await line.close()
    return None if answer is None else answer.status


async def first_status(relay: RunningRelay, request: bytes) -> int | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(request)
    async with asyncio.timeout(BOUND_S):
        words = (await reader.readline()).split()
    writer.transport.abort()
    return int(words[1]) if words else None


def mine(text: str, relay: RunningRelay) -> str:
    return text.replace("PORT", str(relay.port))


async def test_the_exact_names_are_admitted_on_every_way(relay: RunningRelay) -> None:
    good = {"status": 200, "call": 200, "call again": 200, "socket": 101}
    for host in ("127.0.0.1:PORT", "localhost:PORT", "LocalHost:PORT", "[::1]:PORT", " 127.0.0.1:PORT\t"):
        assert await answers(relay, mine(host, relay), []) == good, host
    for origin in (ALLOWED, "http://127.0.0.1:PORT", "http://localhost:PORT", "http://[::1]:PORT", f" {ALLOWED}\t "):
        assert await answers(relay, mine("127.0.0.1:PORT", relay), [("Origin", mine(origin, relay))]) == good, origin


@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_in_any_other_form_is_misdirected_on_every_way(relay: RunningRelay, host: str) -> None:
    found = await answers(relay, mine(host, relay), [])
    assert set(found.values()) <= {421, 400}, found


@pytest.mark.parametrize("origin", ORIGINS)
async def test_an_origin_in_any_other_form_is_forbidden_on_every_way(relay: RunningRelay, origin: str) -> None:
    found = await answers(relay, mine("127.0.0.1:PORT", relay), [("Origin", mine(origin, relay))])
    assert set(found.values()) <= {403, 400}, found


@pytest.mark.parametrize(
    "more",
    [
        [("Host", "127.0.0.1:PORT")],
        [("HOST", "evil.example")],
        [("host", "")],
    ],
)
async def test_a_second_host_is_one_too_many(relay: RunningRelay, more: Fields) -> None:
    found = await answers(relay, mine("127.0.0.1:PORT", relay), [(name, mine(value, relay)) for name, value in more])
    assert set(found.values()) <= {421, 400}, found


@pytest.mark.parametrize(
    "more",
    [
        [("Origin", ALLOWED), ("Origin", ALLOWED)],
        [("Origin", ALLOWED), ("origin", "https://evil.example")],
        [("ORIGIN", "https://evil.example"), ("Origin", ALLOWED)],
        [("Origin", ALLOWED), ("Origin", "")],
        [("Origin", "null"), ("Origin", ALLOWED)],
    ],
)
async def test_a_second_origin_is_one_too_many(relay: RunningRelay, more: Fields) -> None:
    found = await answers(relay, mine("127.0.0.1:PORT", relay), more)
    assert set(found.values()) <= {403, 400}, found


# -- preflights --------------------------------------------------------------------------------------------------------


async def preflight(relay: RunningRelay, path: str, origin: str | None, *more: tuple[str, str]) -> Answer:
    fields = [("Host", f"127.0.0.1:{relay.port}"), ("Access-Control-Request-Method", "POST"), *more]
    line = await RawConnection(relay.port).open()
    line.send(written("OPTIONS", path, fields if origin is None else [*fields, ("Origin", origin)]))
    answer = await line.answer("OPTIONS")
    await line.close()
    assert answer is not None
    return answer


def told(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    return answer.status, {name: value for name, value in answer.headers if name != "date"}, answer.body


MCP_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
)


@pytest.mark.parametrize("asked", [None, "", "authorization,mcp-session-id", "x-evil", "*", "mcp-param-a, mcp-param-b"])
async def test_a_preflight_of_an_admitted_origin_is_answered_alike_for_every_name(
    relay: RunningRelay, asked: str | None
) -> None:
    more = [] if asked is None else [("Access-Control-Request-Headers", asked)]
    there = await preflight(relay, "/notes", ALLOWED, *more)
    status, headers, body = told(there)
    assert (status, body) == (204, b"")
    assert headers["access-control-allow-origin"] == ALLOWED
    allowed = {name.strip().lower() for name in headers["access-control-allow-headers"].split(",")}
    assert set(MCP_HEADERS) <= allowed and not {"x-evil", "*"} & allowed
    assert {"mcp-session-id", "www-authenticate"} <= {
        name.strip().lower() for name in headers["access-control-expose-headers"].split(",")
    }
    assert "access-control-allow-credentials" not in headers
    # A preflight does not reveal whether such a server exists.
    for path in ("/unknown", "/unknown/mcp", "/notes/mcp", "/notes/anything"):
        assert told(await preflight(relay, path, ALLOWED, *more)) == (status, headers, body), path


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"{ALLOWED}.", f"{ALLOWED}:443", f"{ALLOWED}, {ALLOWED}"]
)
@pytest.mark.parametrize("more", [(), (("Access-Control-Request-Private-Network", "true"),)])
async def test_a_preflight_of_any_other_origin_gets_nothing_wherever_it_asks(
    relay: RunningRelay, origin: str, more: Any
) -> None:
    bodies = set()
    for path in ("/notes", "/unknown", "/-/status", "/-/pair", "/-/pairs", "/-/codes", "/-/probe/notes", "/-/metrics"):
        answer = await preflight(relay, path, origin, *more)
        assert answer.status == 403, path
        assert not [name for name, _ in answer.headers if name.startswith("access-control-")], path
        bodies.add(answer.body.replace(b"unknown", b"notes"))
    assert len(bodies) <= 2  # as JSON-RPC for servers, and plain text for other paths


async def test_a_private_network_is_opened_to_unknown(relay: RunningRelay) -> None:
    wish = ("Access-Control-Request-Private-Network", "true")
    for origin in (ALLOWED, "https://stranger.example"):
        for path in ("/notes", "/-/ask"):
            answer = await preflight(relay, path, origin, wish)
            assert answer.header("access-control-allow-private-network") is None


async def test_a_preflight_without_an_origin_is_none(relay: RunningRelay) -> None:
    there, nowhere = await preflight(relay, "/notes", None), await preflight(relay, "/unknown", None)
    assert there.status == nowhere.status == 401
    assert there.body.replace(b"notes", b"X") == nowhere.body.replace(b"unknown", b"X")
