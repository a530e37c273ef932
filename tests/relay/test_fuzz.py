"""Whatever comes in over HTTP gets one proper answer, and the next request works. In one process, for speed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from tabrelay.calls import Notice, Pending, Reply
from tabrelay.config import Settings
from tabrelay.drain import Drain
from tabrelay.faces.entry import Entry
from tabrelay.faces.seal import Seal
from tabrelay.policy import CALL, Principal
from tabrelay.registry import Registry
from tabrelay.shelf import Shelf
from tabrelay.switch import Switch
from tabserver.wire import jsonrpc
from tabserver.wire.frames import Caller
from tests.support.asgi import Answer, http_scope
from tests.support.relay import ACCEPT, modern

EXAMPLES = 2_000
STATUSES = {200, 202, 204, 400, 404, 405, 406, 409, 413, 415, 503}
ME = Principal("token:me", frozenset({CALL}))


class EchoPeer:
    """A browser that answers everything at once with an empty result."""

    is_up = True
    in_flight = 0

    def start(self, pending: Pending) -> None:
        pending.finish(Reply(orjson.dumps(jsonrpc.result_message(pending.call.id, {})).decode()))

    def cancel(self, pending: Pending, why: str) -> None:
        """Nothing is ever running."""

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        assert isinstance(json.loads(payload), dict)

    def end(self, channel: str, why: str) -> None:
        """It keeps nothing."""

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        """It says nothing."""


class Face:
    """The MCP face alone, without gate and network."""

    def __init__(self, home: Path) -> None:
        self.good = ""
        told = Settings(home=home, away_wait_s=0, max_sessions=5_000)
        registry = Registry(Shelf(None))
        registry.take("notes", EchoPeer())
        self.entry = Entry(Switch(registry, told), told, Drain.for_settings(told), Seal(b"key"))

    async def request(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        """The client stays for a whole answer, and leaves a stream as soon as it has begun."""
        answer = Answer()
        starts = 0
        chunks: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        streaming = asyncio.Event()

        async def receive() -> Message:
            if chunks:
                return chunks.pop()
            await streaming.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal starts
            if message["type"] == "http.response.start":
                starts += 1
                answer.status = message["status"]
                answer.headers = [(key.decode(), value.decode()) for key, value in message["headers"]]
            else:
                answer.body += message.get("body", b"")
                if message.get("more_body"):
                    streaming.set()

        scope = http_scope(method, path, headers)
        scope["state"] = {"principal": ME}
        async with asyncio.timeout(10):
            await self.entry(scope, receive, send)
        assert starts == 1
        return answer

    async def works(self) -> None:
        """A good request of each era."""
        request = modern("tools/call", {"name": "echo", "arguments": {}})
        headers = [*JSON, *request["headers"].items()]
        answer = await self.request("POST", "/notes", headers, orjson.dumps(request["json"]))
        assert (answer.status, answer.json()["result"]) == (200, {})
        self.good = self.good or await self.session()
        call = orjson.dumps(jsonrpc.request(7, "tools/call", {"name": "echo"}))
        answer = await self.request("POST", "/notes", [*JSON, ("Mcp-Session-Id", self.good)], call)
        assert (answer.status, answer.json()["result"]) == (200, {})

    async def session(self) -> str:
        params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        body = orjson.dumps(jsonrpc.request(1, "initialize", params))
        answer = await self.request("POST", "/notes", JSON, body)
        return answer.header("mcp-session-id") or ""


JSON = [("Accept", ACCEPT), ("Content-Type", "application/json")]
HEADERS = {
    "Accept": [ACCEPT, "*/*", "application/json", "text/event-stream", "", "text/html;q=1,,", ", ".join(["*/*"] * 99)],
    "Content-Type": ["application/json", "application/json; charset=utf-8", "text/plain", "", "application/jsonp"],
    "Content-Length": ["0", "99999999999", "-1", "x", "٣"],
    "MCP-Protocol-Version": ["2026-07-28", "2025-11-25", "2025-03-26", "2024-11-05", "1999-01-01", "", "2026-07-28 \t"],
    "Mcp-Method": ["tools/call", "tools/list", "initialize", "", "=?base64?dG9vbHMvbGlzdA==?="],
    "Mcp-Name": ["echo", "=?base64?ZWNobw==?=", "=?base64?!?=", "=?base64??=", "é"],
    "Mcp-Param-Region": ["eu", ""],
    "Mcp-Session-Id": ["", "x", "SESSION", "s1.AAAA", "é" * 40],
    "Last-Event-ID": ["", "x_1", "get-abc_0", "_", "a_-1", "a_٣"],
}
METHODS = ["tools/call", "tools/list", "initialize", "ping", "server/discover", "subscriptions/listen", "no/such", ""]
META = modern("x")["json"]["params"]["_meta"]

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
params = st.fixed_dictionaries(
    {},
    optional={
        "_meta": st.sampled_from([META, {**META, "progressToken": 1}, {}, [], None]) | trees,
        "name": st.sampled_from(["echo", "", None]) | trees,
        "uri": trees,
        "arguments": trees,
        "protocolVersion": st.sampled_from(["2025-11-25", "2025-03-26", 7, None]),
        "capabilities": trees,
        "clientInfo": trees,
        "level": trees,
        "notifications": trees,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", None]),
        "id": st.integers(-3, 3) | st.text(max_size=3) | trees,
        "method": st.sampled_from(METHODS) | trees,
        "params": params | trees,
        "result": trees,
        "error": trees,
    },
)


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


NASTY = [
    *(b"", b"NaN", b'{"id":NaN}', b"\xff", b" " * 5_000_000),
    *(b"[" * 10_000, b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000),
    *(b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', b'{"id":1,"id":2,"method":"ping"}'),
]
bodies = (
    messages.map(dumped)
    | st.lists(messages, max_size=3).map(dumped)
    | trees.map(dumped)
    | st.binary(max_size=60)
    | st.sampled_from(
        [b"", b"NaN", b'{"id":NaN}', b"[" * 10_000, b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000, b"\xff"]
    )
    | st.sampled_from(
        [b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', b'{"id":1,"id":2,"method":"ping"}', b" " * 5_000_000]
    )
)
header_lists = st.lists(
    st.sampled_from(sorted(HEADERS)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name]))),
    max_size=8,
)


@pytest.mark.requirement("bad-input")
def test_anything_gets_one_proper_answer_and_the_next_request_works(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        face = runner.get_loop().run_until_complete(_face(tmp_path))
        session = runner.run(face.session())

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(
            method=st.sampled_from(["POST"] * 6 + ["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW"]),
            path=st.sampled_from(["/notes"] * 8 + ["/nobody", "/notes/sse", "/notes/messages", "/n\x00"]),
            base=st.booleans(),
            headers=header_lists,
            body=bodies,
        )
        @example("POST", "/notes", True, [], b"[" * 10_000)
        @example("POST", "/notes", True, [("Mcp-Session-Id", "SESSION")], dumped(jsonrpc.result_message("nobody", {})))
        def attempt(method: str, path: str, base: bool, headers: list[tuple[str, str]], body: bytes) -> None:
            sent = [*(JSON if base else ()), *headers]
            # The session that everything here may use must live on.
            if method != "DELETE":
                sent = [(name, session if value == "SESSION" else value) for name, value in sent]
            sent = [(name, value.encode().decode("latin-1")) for name, value in sent]
            answer = runner.run(face.request(method, path, sent, body))
            check(answer, body)
            runner.run(face.works())

        attempt()


async def _face(home: Path) -> Face:
    return Face(home)


def check(answer: Answer, body: bytes) -> None:
    assert answer.status in STATUSES, answer
    kind = answer.header("content-type")
    if kind != "application/json":
        assert answer.status in (200, 202, 204)
        return
    said = answer.json()
    for message in said if isinstance(said, list) else [said]:
        assert message["jsonrpc"] == "2.0"
        assert ("result" in message) is not ("error" in message)
        if "error" in message:
            error = message["error"]
            assert isinstance(error["code"], int) and error["message"]
            assert error["data"]["delivered"] in ("no", "unknown")
    if not isinstance(said, list) and said["id"] is not None:
        assert said["id"] == orjson.loads(body)["id"]
