"""HTTP requests as bytes on a real connection, where a client library would repair or refuse what the test sends."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tabserver.wire.events import Received
from tests.support.asgi_client import Answer
from tests.support.link_worker import SyntheticWorker
from tests.support.raw_http import RawConnection
from tests.support.running_relay import ACCEPT, RunningRelay, modern
from tests.support.waiting import BOUND_S

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
H2C = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAEAAEAAAAIAAAAA")]
WEBSOCKET = [
    *(("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
Headers = list[tuple[str, str]]


class Line:
    """One connection of an admitted client."""

    def __init__(self, relay: RunningRelay) -> None:
        self._relay = relay
        self._connection = RawConnection(relay.port)

    async def __aenter__(self) -> Line:
        await self._connection.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._connection.close()

    def written(self, body: Any, headers: Headers, method: str = "POST", path: str = "/notes") -> bytes:
        text = body if isinstance(body, bytes) else orjson.dumps(body)
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self._relay.port}"]
        lines += [f"Authorization: Bearer {self._relay.token}", f"Accept: {ACCEPT}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not any(name == "Content-Type" for name, _ in headers):
            lines.append("Content-Type: application/json")
        lines.append(f"Content-Length: {len(text)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + text

    def send(self, data: bytes) -> None:
        self._connection.send(data)

    async def is_over(self) -> bool:
        return await self._connection.answer() is None

    async def ask(
        self, body: Any, headers: Headers | None = None, method: str = "POST", path: str = "/notes"
    ) -> Answer:
        self._connection.send(self.written(body, headers or [], method, path))
        return await self.answer(method)

    async def trickle(self, data: bytes) -> None:
        """Byte by byte, as on a bad network."""
        for byte in data:
            self._connection.send(bytes([byte]))
            await asyncio.sleep(0)

    async def answer(self, method: str = "POST") -> Answer:
        answer = await self._connection.answer(method)
        assert answer is not None
        return answer


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        yield relay


def good() -> tuple[dict[str, Any], Headers]:
    request = modern("tools/call", {"name": "echo", "arguments": {"n": 1}})
    return request["json"], list(request["headers"].items())


async def works(line: Line) -> bool:
    answer = await line.ask(*good())
    return answer.status == 200 and answer.json()["result"]["content"][0]["text"] == '{"n": 1}'


@pytest.mark.requirement("bad-input")
async def test_a_client_that_prefers_http_2_is_answered_in_http_1(relay: RunningRelay) -> None:
    body, headers = good()
    async with Line(relay) as line:
        answer = await line.ask(INITIALIZE, H2C)
        assert (answer.status, answer.json()["id"]) == (200, 1)
        session = answer.header("mcp-session-id") or ""
        # On the same connection, with and without the upgrade header; a large body, and one that arrives byte by byte.
        assert await works(line)
        assert (await line.ask(body, [*headers, *H2C])).status == 200
        large = {**body, "params": {**body["params"], "arguments": {"n": "x" * 300_000}}}
        assert len((await line.ask(large, [*headers, *H2C])).body) > 300_000
        await line.trickle(line.written(body, [*headers, *H2C]))
        assert (await line.answer()).status == 200
        ended = await line.ask(b"", [*H2C, ("Mcp-Session-Id", session)], "DELETE")
        assert ended.status == 204
        assert await works(line)


@pytest.mark.requirement("bad-input")
async def test_an_upgrade_does_not_lead_past_the_limit_of_a_header(relay: RunningRelay) -> None:
    async with Line(relay) as line:
        answer = await line.ask(INITIALIZE, [*H2C, ("X-Long", "x" * 70_000)])
    assert answer.status == 431


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize(
    ("method", "body", "more", "status"),
    [("POST", b"{}", [], 400), ("GET", b"{}", [], 400), ("GET", b"", [("X-Long", "x" * 9_000)], 431)],
)
async def test_a_request_that_is_no_handshake_of_a_websocket_is_answered_and_disconnected(
    relay: RunningRelay, method: str, body: bytes, more: Headers, status: int
) -> None:
    async with Line(relay) as line:
        answer = await line.ask(body, [*WEBSOCKET, *more], method)
        assert answer.status == status
        assert await line._connection.answer() is None


@pytest.mark.requirement("bad-input")
async def test_bytes_behind_the_handshake_of_a_websocket_are_refused_with_it(relay: RunningRelay) -> None:
    async with Line(relay) as line:
        handshake = line.written(b"", WEBSOCKET, "GET", "/maps").replace(b"Content-Length: 0\r\n", b"")
        line.send(handshake + line.written(*good()))
        assert (await line.answer("GET")).status == 400
        assert await line.is_over()


@pytest.mark.requirement("bad-input")
async def test_contradicting_headers_are_refused(relay: RunningRelay) -> None:
    body, headers = good()
    async with Line(relay) as line:
        answer = await line.ask(body, [*headers, ("Content-Type", "application/json"), ("Content-Type", "text/plain")])
        assert answer.status == 415
        session = (await line.ask(INITIALIZE)).header("mcp-session-id") or ""
        lists = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        mine = [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")]
        assert (await line.ask(lists, [*mine, ("MCP-Protocol-Version", "2025-06-18")])).status == 400
        assert (await line.ask(lists, [*mine, ("Mcp-Session-Id", session)])).status == 400
        assert (await line.ask(lists, mine)).status == 200
        for name, value in headers:
            answer = await line.ask(body, [*headers, (name.lower(), value)])
            assert (answer.status, answer.json()["error"]["code"], answer.json()["id"]) == (400, -32020, 1)
        assert await works(line)


@pytest.mark.requirement("bad-input")
async def test_a_message_that_was_compressed_is_refused_for_that_reason(relay: RunningRelay) -> None:
    body, headers = good()
    async with Line(relay) as line:
        answer = await line.ask(gzip.compress(orjson.dumps(body)), [*headers, ("Content-Encoding", "gzip")])
        assert (answer.status, answer.json()["error"]["data"]["reason"]) == (415, "content_encoding")
        assert answer.header("accept-encoding") == "identity"
        assert (await line.ask(body, [*headers, ("Content-Encoding", "identity")])).status == 200
        assert await works(line)


@pytest.mark.requirement("modern-headers-agree")
async def test_a_header_has_no_bytes_that_are_not_ascii(relay: RunningRelay) -> None:
    request = modern("resources/read", {"uri": "note:///é"})
    headers = {**request["headers"], "Mcp-Name": "note:///é"}  # as Latin-1, where it equals the name in the body
    async with Line(relay) as line:
        answer = await line.ask(request["json"], list(headers.items()))
        assert (answer.status, answer.json()["error"]["code"], answer.json()["id"]) == (400, -32020, 1)
        assert "base64" in answer.json()["error"]["message"]


@pytest.mark.requirement("session-required")
async def test_an_unknown_version_is_named_to_a_client_of_any_era(relay: RunningRelay) -> None:
    async with Line(relay) as line:
        session = (await line.ask(INITIALIZE)).header("mcp-session-id") or ""
        headers = [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "1999-01-01")]
        answer = await line.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers)
        assert answer.status == 400 and "1999-01-01" in answer.json()["error"]["message"]


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize(
    "change", [{"jsonrpc": "1.0"}, {"jsonrpc": None}, {"jsonrpc": 2.0}, {"method": 7}, {"method": None}]
)
async def test_a_message_that_is_no_json_rpc_2_is_refused_with_its_id(
    relay: RunningRelay, era: str, change: dict[str, Any]
) -> None:
    body, headers = good()
    async with Line(relay) as line:
        if era == "handshake":
            session = (await line.ask(INITIALIZE)).header("mcp-session-id") or ""
            body, headers = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, [("Mcp-Session-Id", session)]
        answer = await line.ask({**body, **change}, headers)
        assert (answer.status, answer.json()["error"]["code"], answer.json()["id"]) == (400, -32600, 1)
        without = {key: value for key, value in body.items() if key != "jsonrpc"}
        assert (await line.ask(without, headers)).status == 400
        assert await works(line)


@pytest.mark.requirement("bad-input")
async def test_the_address_of_a_server_may_end_with_a_slash(relay: RunningRelay) -> None:
    async with Line(relay) as line:
        assert (await line.ask(INITIALIZE, path="/notes/")).status == 200
        assert (await line.ask(b"", method="GET", path="/notes/sse/")).body.startswith(b"event: endpoint")
    async with Line(relay) as line:
        answer = await line.ask(INITIALIZE, path="/notes/mpc")
        assert (answer.status, answer.json()["error"]["data"]["reason"]) == (404, "not_found")
        assert "/notes" in answer.json()["error"]["message"]


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize("path", ["/notes/mcp", "/notes/mcp/"])
async def test_clients_that_put_mcp_behind_every_address_find_the_server(relay: RunningRelay, path: str) -> None:
    async with Line(relay) as line:
        session = (await line.ask(INITIALIZE, path=path)).header("mcp-session-id") or ""
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        # Both are one address: a session that began at one of them continues at the other.
        for place in (path, "/notes"):
            answer = await line.ask(listing, [("Mcp-Session-Id", session)], path=place)
            assert (answer.status, "result" in answer.json()) == (200, True)
        gone = await line.ask(b"", [("Mcp-Session-Id", session)], method="DELETE", path=path)
        assert gone.status == 204
        wrong = await line.ask(b"", method="PUT", path=path)
        assert (wrong.status, wrong.header("allow")) == (405, "GET, POST, DELETE")
        for nothing in ("/notes/mcp/mcp", "/notes/mcp/sse", "/notes/x/mcp"):
            assert (await line.ask(INITIALIZE, path=nothing)).status == 404
        assert (await line.ask(INITIALIZE, path="/unknown/mcp")).json()["error"]["data"]["reason"] == "unknown_server"


@pytest.mark.requirement("bad-input")
async def test_a_server_may_be_called_mcp(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "mcp"):
        await relay.has_read("mcp")
        for path in ("mcp", "mcp/mcp"):
            assert "result" in (await relay.call(path, "echo", {})).json()


SECOND = b"GET /-/healthz HTTP/1.1\r\nHost: HOST\r\n\r\n"


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"POST /demo HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /demo HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /demo HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nContent-Length: 0\r\n\r\n", 400),
        (b"POST /demo HTTP/1.1\r\nHost: HOST\r\nContent-Length: +0\r\n\r\n", 400),
        (b"GET /-/healthz HTTP/1.1\r\nHost : HOST\r\n\r\n", 400),
        (b"GET /-/healthz HTTP/1.1\r\nHost: HOST\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET /-/healthz HTTP/1.1\r\nHost: HOST\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET /-/healthz HTTP/1.1\nHost: HOST\n\n", 400),
        (b"CONNECT HOST HTTP/1.1\r\nHost: HOST\r\n\r\n", 400),
        (b"GET http://evil.example/-/healthz HTTP/1.1\r\nHost: HOST\r\n\r\n", 421),
        (b"GET http://HOST@evil.example/-/healthz HTTP/1.1\r\nHost: HOST\r\n\r\n", 421),
        (b"GET http://HOST/-/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
    ],
)
async def test_what_two_readers_could_take_for_two_things_is_refused_and_nothing_behind_it_counts(
    relay: RunningRelay, text: bytes, status: int
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write((text + SECOND).replace(b"HOST", f"127.0.0.1:{relay.port}".encode()))
    async with asyncio.timeout(BOUND_S):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.requirement("bad-input")
async def test_a_whole_address_of_this_relay_in_the_request_line_is_one(relay: RunningRelay) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    host = f"LOCALHOST:{relay.port}"
    line = f"GET http://{host.lower()}/-/healthz?x HTTP/1.1"
    writer.write(f"{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(BOUND_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize(("size", "answers"), [(100, 6), (20_000, 1)])
async def test_what_is_sent_ahead_of_an_answer_has_a_limit(relay: RunningRelay, size: int, answers: int) -> None:
    waiting: list[Received[str]] = []
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker, Line(relay) as line:
        worker.on_call = lambda worker, event, message: waiting.append(event)
        request = modern("tools/call", {"name": "echo", "arguments": {"n": "x" * size}})
        headers = list(request["headers"].items())
        line.send(line.written(request["json"], headers) * 6)
        await worker.until(lambda: bool(waiting))
        worker.on_call = SyntheticWorker.echo
        worker.answer(waiting[0], {"content": []})
        await worker.flush()
        assert [(await line.answer()).status for _ in range(answers)] == [200] * answers
        if answers < 6:
            assert await line.is_over()
            assert len(worker.calls) == 1


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "larger than what may be sent ahead"])
@pytest.mark.requirement("bad-input")
async def test_a_request_behind_the_end_of_a_body_that_was_refused_early_is_answered(
    relay: RunningRelay, size: int
) -> None:
    body, headers = good()
    body["params"]["arguments"] = {"text": "a" * size}
    async with Line(relay) as line:
        refused = line.written(b" " * 100_000, [], path="/-/forget")
        line.send(refused[:50_000])
        assert (await line.answer()).status == 413
        line.send(refused[50_000:] + line.written(body, headers))
        assert (await line.answer()).status == 200
        assert await works(line)


@pytest.mark.requirement("bad-input")
async def test_the_end_of_a_body_is_no_request_though_its_header_asks_for_another_protocol(relay: RunningRelay) -> None:
    body, headers = good()
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker, Line(relay) as line:
        hidden = line.written(body, headers)
        # The end of the second request's body looks like another request.
        text = b'{"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {"x": "' + b"x" * 300 + b'"}}' + hidden
        line.send(line.written(body, [*headers, *H2C]) + line.written(text, [*headers, *H2C]))
        first, second = await line.answer(), await line.answer()
        assert (first.status, second.status) == (200, 400)
        assert await works(line)
        assert len(worker.calls) == 2


@pytest.mark.requirement("bad-input")
async def test_many_requests_in_one_read_that_ask_for_another_protocol_end_in_no_error(
    relay: RunningRelay, caplog: pytest.LogCaptureFixture
) -> None:
    async with Line(relay) as line:
        line.send(line.written(b"", H2C, "GET", "/-/healthz") * 600)
        assert (await line.answer("GET")).status == 200
        assert await line.is_over()
        few = 20
        async with Line(relay) as other:
            other.send(other.written(b"", H2C, "GET", "/-/healthz") * few)
            assert [(await other.answer("GET")).status for _ in range(few)] == [200] * few
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


def chunked(line: Line, body: Any, headers: Headers, trailers: bytes, *without: str) -> bytes:
    """A request with a chunked body, with trailers and without some of its header fields."""
    head, _, text = line.written(body, headers).partition(b"\r\n\r\n")
    names = {name.lower().encode() for name in (*without, "Content-Length")}
    kept = [each for each in head.split(b"\r\n") if each.partition(b":")[0].lower() not in names]
    size = f"{len(text):x}\r\n".encode()
    kept.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join([*kept, b"", size + text, b"0", trailers])


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize(
    ("missing", "status"), [("", 200), ("Authorization", 401), ("Host", 421), ("Mcp-Name", 400), ("Accept", 406)]
)
async def test_a_trailer_does_not_replace_a_header_field(relay: RunningRelay, missing: str, status: int) -> None:
    body, headers = good()
    values = {"Authorization": f"Bearer {relay.token}", "Host": f"127.0.0.1:{relay.port}", "Accept": ACCEPT}
    values |= dict(headers)
    trailers = "".join(f"{name}: {value}\r\n" for name, value in values.items())
    async with Line(relay) as line:
        line.send(chunked(line, body, headers, f"{trailers}Origin: http://evil.example\r\n\r\n".encode(), missing))
        assert (await line.answer()).status == status
        assert await works(line)


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize("trailers", [b"X: y\r\n" * 20_000, b"X: " + b"y" * 100_000], ids=["many", "long"])
@pytest.mark.parametrize("who", ["client", "stranger"])
async def test_trailers_have_a_limit(relay: RunningRelay, trailers: bytes, who: str) -> None:
    body, headers = good()
    async with Line(relay) as line:
        line.send(chunked(line, body, headers, trailers, *(["Authorization"] if who == "stranger" else [])))
        # An unknown client may get this answer before the trailers arrive.
        assert (await line.answer()).status in ((431,) if who == "client" else (431, 401))
        assert await line.is_over()
    async with Line(relay) as line:
        assert await works(line)


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize(("count", "answers"), [(20, 20), (1000, 0)])
async def test_requests_without_a_body_that_are_sent_ahead_have_a_limit(
    relay: RunningRelay, count: int, answers: int
) -> None:
    waiting: list[Received[str]] = []
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker, Line(relay) as line:
        worker.on_call = lambda worker, event, message: waiting.append(event)
        line.send(line.written(*good()) + line.written(b"", [], "GET", "/-/healthz") * count)
        await worker.until(lambda: bool(waiting))
        worker.answer(waiting[0], {"content": []})
        await worker.flush()
        assert (await line.answer()).status == 200
        assert [(await line.answer("GET")).status for _ in range(answers)] == [200] * answers
        assert answers or await line.is_over()
