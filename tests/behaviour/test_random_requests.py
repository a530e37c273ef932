"""Random requests over a real connection: each gets one correct answer, and the next request works.

Every example is bytes on a socket and passes uvicorn's parser, the gate (Host, Origin, token), the faces, the link and
the real MCP core. Only the browser is replaced by CPython.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.wire import jsonrpc
from tests.support.asgi_client import Answer
from tests.support.cpython_worker import CPythonWorker
from tests.support.raw_http import RawConnection
from tests.support.running_relay import ACCEPT, RunningRelay, modern

ALL_EXAMPLES = 2_000
EXAMPLES = int(os.environ.get("TABRELAY_EXAMPLES", ALL_EXAMPLES))
STATUSES = {200, 202, 204, 400, 404, 405, 406, 409, 413, 415, 503}
# Statuses of the HTTP layer for bytes that are not a request.
UNREADABLE = {400, 408, 431, 501, 505}

JSON = [(b"Accept", ACCEPT.encode()), (b"Content-Type", b"application/json")]
HEADERS: dict[bytes, list[bytes]] = {
    b"Accept": [ACCEPT.encode(), b"*/*", b"application/json", b"text/event-stream", b"", b"text/html;q=1,,"],
    b"Content-Type": [
        b"application/json",
        b"application/json; charset=utf-8",
        b"text/plain",
        b"",
        b"application/jsonp",
    ],
    b"MCP-Protocol-Version": [b"2026-07-28", b"2025-11-25", b"2025-03-26", b"2024-11-05", b"1999-01-01", b"", b"\xb2"],
    b"Mcp-Method": [
        b"tools/call",
        b"tools/list",
        b"initialize",
        b"",
        b"=?base64?dG9vbHMvbGlzdA==?=",
        b"tools/call \t ",
    ],
    b"Mcp-Name": [b"echo", b"=?base64?ZWNobw==?=", b"=?base64?!?=", b"=?base64??=", b"\xc3\xa9", b"\techo"],
    b"Mcp-Param-Region": [b"eu", b""],
    b"Mcp-Session-Id": [b"", b"x", b"SESSION", b"SESSION", b"s1.AAAA", b"\xc3\xa9" * 40, b"s" * 2_000],
    b"Last-Event-ID": [b"", b"x_1", b"get-abc_0", b"_", b"a_-1", b"a_\xd9\xa3"],
    b"X-Forwarded-Host": [b"evil.example"],
    b"Cookie": [b"a=b; c", b"\xff"],
    b"Expect": [b"100-continue", b"a miracle"],
    b"Connection": [b"close", b"keep-alive", b"upgrade", b"Upgrade, HTTP2-Settings", b", ,"],
    b"Upgrade": [b"h2c", b"websocket", b"TLS/1.0"],
    b"Sec-WebSocket-Key": [b"dGhlIHNhbXBsZSBub25jZQ==", b"x"],
    b"Sec-WebSocket-Version": [b"13", b"12"],
    b"Content-Encoding": [b"gzip"],
    b"Access-Control-Request-Method": [b"POST"],
}
# Lines that are not a header, or a header that must not be trusted.
JUNK = [
    *(b"no colon here", b" folded: line", b"\tfolded", b": no name", b"Bad Name: x", b"X-Nul: a\x00b", b"X-\xff: y"),
    *(b"X-Cr: a\rb", b"Mcp-Method : tools/list", b"Host : evil.example", b"X" * 70_000 + b": long", b"\x00"),
    *(b"X-Long: " + b"v" * 70_000, b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked, identity", b"{}"),
]
METHODS = [b"POST"] * 12 + [b"GET"] * 2 + [b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"PATCH"]
NO_METHODS = [b"BREW", b"post", b"", b"P\x00ST", b"CONNECT", b"PRI"]
TARGETS = [b"/notes"] * 14 + [
    b"/unknown",
    b"/notes/sse",
    b"/notes/messages",
    b"/notes/messages?session_id=" + b"0" * 32,
]
TARGETS += [b"/notes?a=b", b"/notes/", b"/notes/else", b"/notes%00", b"/%6eotes", b"/n%C3%A9", b"//notes", b"/-/status"]
NO_TARGETS = [
    b"*",
    b"notes",
    b"",
    b"/no tes",
    b"/\xff",
    b"/n\x00",
    b"http://127.0.0.1/notes",
    b"http://",
    b"/" * 70_000,
]
VERSIONS = [b"HTTP/1.1"] * 9 + [b"HTTP/1.0"]
NO_VERSIONS = [b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 x", b"", b"HTCPCP/1.0"]
# Java's HTTP client sends it with every first request.
H2C = ((b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAEAAEAAAAIAAAAA"))
WEBSOCKET = (
    *((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13")),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
)
WORDS = ["tools/call", "tools/list", "initialize", "ping", "server/discover", "subscriptions/listen", "no/such", ""]
WORDS += ["resources/read", "prompts/get", "logging/setLevel", "completion/complete", "notifications/cancelled"]
META = modern("x")["json"]["params"]["_meta"]
NASTY = [
    *(b"", b"NaN", b'{"id":NaN}', b"Infinity", b"\xff", b"\xef\xbb\xbf{}", b"{}", b"[]", b"null", b"{} {}"),
    *(b"[" * 10_000, b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 10_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    *(b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', b'{"id":1,"id":2,"method":"ping"}', b'{"id":1e999}'),
    *(b" " * 5_000_000, b'{"jsonrpc":"2.0","id":"' + b"9" * 100_000 + b'","method":"ping"}'),
]

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
params = st.fixed_dictionaries(
    {},
    optional={
        "_meta": st.sampled_from([META, META, {**META, "progressToken": 1}, {}, [], None]) | trees,
        "name": st.sampled_from(["echo", "", None]) | trees,
        "uri": trees,
        "arguments": trees,
        "protocolVersion": st.sampled_from(["2025-11-25", "2025-03-26", 7, None]),
        "capabilities": trees,
        "clientInfo": trees,
        "level": trees,
        "notifications": trees,
        "requestId": trees,
        "requestState": trees,
        "inputResponses": trees,
    },
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0"] * 8 + ["1.0", None, 2])},
    optional={
        "id": st.integers(-3, 3) | st.text(max_size=3) | trees,
        "method": st.sampled_from(WORDS) | trees,
        "params": params | trees,
        "result": trees,
        "error": trees,
    },
)


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


GOOD = modern("tools/call", {"name": "echo", "arguments": {"said": "hi"}})
GOOD_BODY = dumped(GOOD["json"])
GOOD_HEADERS = tuple((name.encode(), value.encode()) for name, value in GOOD["headers"].items())

bodies = (
    messages.map(dumped)
    | messages.map(dumped)
    | st.lists(messages, max_size=3).map(dumped)
    | trees.map(dumped)
    | st.binary(max_size=60)
    | st.sampled_from(NASTY)
)
header_lists = st.lists(
    st.sampled_from(sorted(HEADERS)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name]))),
    max_size=8,
)
# How a body is announced and sent. For those after the first line, two parsers may disagree where it ends.
WHOLE = ["length"] * 4 + ["chunked"] * 2
BROKEN = [
    "none",
    "short",
    "long",
    "negative",
    "word",
    "twice",
    "differing",
    "both",
    "bad chunk",
    "unended",
    "huge chunk",
]


def rarely(usual: list[bytes], strange: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.integers(0, 11).flatmap(lambda roll: st.sampled_from(strange if roll == 11 else usual))


@dataclass(frozen=True)
class Attempt:
    """One request, in parts. `hosts`, `origins` and `tokens` are all headers of that name: exactly one is right, or
    none."""

    method: bytes = b"POST"
    target: bytes = b"/notes"
    version: bytes = b"HTTP/1.1"
    hosts: tuple[bytes, ...] = (b"HOST",)
    origins: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = (b"Bearer TOKEN",)
    has_basics: bool = True
    headers: tuple[tuple[bytes, bytes], ...] = ()
    junk: tuple[bytes, ...] = ()
    eol: bytes = b"\r\n"
    framing: str = "length"
    body: bytes = b""

    @property
    def is_http(self) -> bool:
        """Whether it has only one interpretation, and an end."""
        has_upgrade = any(name == b"Upgrade" and value == b"websocket" for name, value in self.headers)
        return (
            not self.junk
            and self.eol == b"\r\n"
            and self.framing in WHOLE
            and self.method not in NO_METHODS
            and self.target not in NO_TARGETS
            and self.version in VERSIONS
            and not (self.framing == "chunked" and self.version == b"HTTP/1.0")  # which has no such coding
            and not has_upgrade
        )

    @property
    def is_cut_short(self) -> bool:
        """Whether a parser may wait for more."""
        return self.framing in ("short", "unended") or any(b"Encoding" in line for line in self.junk)

    @property
    def is_too_large(self) -> bool:
        return len(self.body) > 4_000_000

    @property
    def is_welcome(self) -> bool:
        return self._has_host and self._has_origin and self._has_token

    @property
    def _has_host(self) -> bool:
        return len(self.hosts) == 1 and self.hosts[0].strip() == b"HOST"

    @property
    def _has_origin(self) -> bool:
        return not self.origins or self.origins == (b"ORIGIN",)

    @property
    def _has_token(self) -> bool:
        return len(self.tokens) == 1 and self.tokens[0] in (b"Bearer TOKEN", b"bearer  TOKEN")

    def refusal(self) -> int | None:
        """The refusal that the gate must return, in its order of checks."""
        if not self._has_host:
            return 421
        if not self._has_origin:
            return 403
        asks = self.method == b"OPTIONS" and any(name == b"Access-Control-Request-Method" for name, _ in self.headers)
        if asks and self.origins and not self.target.startswith(b"//"):  # no server's path: no page may request it
            return 204
        return None if self._has_token else 401

    def written(self, put_in: dict[bytes, bytes]) -> bytes:
        headers = [(b"Host", value) for value in self.hosts]
        headers += [(b"Origin", value) for value in self.origins]
        headers += [(b"Authorization", value) for value in self.tokens]
        headers += [*(JSON if self.has_basics else ()), *self.headers]
        announced, body = framed(self.framing, self.body)
        lines = [name + b": " + value for name, value in headers + announced]
        lines[1:1] = self.junk
        head = self.eol.join([b" ".join([self.method, self.target, self.version]), *lines, b"", b""])
        for word, value in put_in.items():
            head = head.replace(word, value)
        return head + body


def framed(how: str, body: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    size = len(body)
    half = body[: size // 2]
    chunked = [(b"Transfer-Encoding", b"chunked")]
    chunks = b"".join(b"%x;x=y\r\n%b\r\n" % (len(part), part) for part in (half, body[size // 2 :]) if part)
    whole = chunks + b"0\r\nTrailer: x\r\n\r\n"
    lengths = {
        "length": [size],
        "short": [size + 9],
        "long": [size // 2],
        "negative": [-1],
        "twice": [size, size],
        "differing": [size, size + 1],
    }
    if how in lengths:
        return [(b"Content-Length", str(length).encode()) for length in lengths[how]], body
    return {
        "none": ([], body),
        "word": ([(b"Content-Length", b"\xb2")], body),
        "chunked": (chunked, whole),
        "both": ([*chunked, (b"Content-Length", str(size).encode())], whole),
        "bad chunk": (chunked, b"-1\r\n" + body),
        "unended": (chunked, chunks),
        "huge chunk": (chunked, b"ffffffffffffffffff\r\n"),
    }[how]


attempts = st.builds(
    Attempt,
    method=rarely(METHODS, NO_METHODS),
    target=rarely(TARGETS, NO_TARGETS),
    version=rarely(VERSIONS, NO_VERSIONS),
    hosts=st.sampled_from([(b"HOST",)] * 24 + [(b"evil.example",), (), (b"HOST", b"HOST"), (b"HOST \t",), (b"",)]),
    origins=st.sampled_from([()] * 16 + [(b"ORIGIN",)] * 4 + [(b"null",), (b"http://evil.example",), (b"ORIGIN",) * 2]),
    tokens=st.sampled_from(
        [(b"Bearer TOKEN",)] * 24
        + [(), (b"",), (b"Bearer wrong",), (b"Basic TOKEN",), (b"Bearer TOKEN",) * 2, (b"bearer  TOKEN",)]
        + [(b"Bearer \xff",), (b"Bearer TOKEN, Bearer TOKEN",)]
    ),
    has_basics=st.sampled_from([True, True, True, False]),
    headers=header_lists.map(tuple),
    junk=st.integers(0, 7).flatmap(
        lambda roll: st.just(()) if roll else st.sampled_from(JUNK).map(lambda line: (line,))
    ),
    eol=st.sampled_from([b"\r\n"] * 15 + [b"\n"]),
    framing=st.integers(0, 7).flatmap(lambda roll: st.sampled_from(WHOLE if roll else BROKEN)),
    body=bodies,
)


class Bench:
    """A relay with the real MCP core, and one connection that carries every valid request."""

    def __init__(self, home: Path) -> None:
        # Nothing runs while Hypothesis generates an example; the first one takes seconds, and connections are idle.
        self.relay = RunningRelay(home, away_wait_s=0, max_sessions=5_000, rate_s=0, connection_idle_s=600)
        toolbox = Toolbox()
        tool(toolbox=toolbox)(echo)
        self.worker = CPythonWorker(self.relay.url, self.relay.token, "notes", toolbox)
        self.seen: Counter[str] = Counter()

    async def start(self) -> None:
        await self.relay.__aenter__()
        await self.worker.__aenter__()
        self.put_in = {
            b"HOST": f"127.0.0.1:{self.relay.port}".encode(),
            b"ORIGIN": self.relay.url.encode(),
            b"TOKEN": self.relay.token.encode(),
        }
        self.line = await RawConnection(self.relay.port).open()
        self.put_in[b"SESSION"] = (await self.session()).encode()
        self.good = await self.session()

    async def stop(self) -> None:
        await self.line.close()
        await self.worker.__aexit__(None, None, None)
        # These clients make the relay forward wrong messages to the server; they are not the product's own.
        recorder = self.relay.recorder
        recorder.wrong = [wrong for wrong in recorder.discard_violations() if " to server: " not in wrong]
        await self.relay.__aexit__(None, None, None)

    async def session(self) -> str:
        params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self.ask(self.line, dumped(jsonrpc.request(1, "initialize", params)), ())
        return answer.header("mcp-session-id") or ""

    async def ask(self, line: RawConnection, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> Answer:
        line.send(Attempt(headers=headers, body=body).written(self.put_in))
        answer = await line.answer()
        assert answer is not None
        return answer

    async def works(self) -> None:
        """A valid request of each era, on the connection that carries nothing else."""
        await self.is_answered(self.line)
        call = dumped(jsonrpc.request(7, "tools/call", {"name": "echo", "arguments": {"said": "ho"}}))
        answer = await self.ask(self.line, call, ((b"Mcp-Session-Id", self.good.encode()),))
        assert (answer.status, answer.json()["result"]["content"][0]["text"]) == (200, "ho")

    async def is_answered(self, line: RawConnection) -> None:
        answer = await self.ask(line, GOOD_BODY, GOOD_HEADERS)
        assert (answer.status, answer.json()["result"]["content"][0]["text"]) == (200, "hi")

    async def attempt(self, attempt: Attempt) -> None:
        line = await RawConnection(self.relay.port).open()
        try:
            put_in = self.put_in
            if attempt.method == b"DELETE":  # the shared session must still exist
                put_in = {**put_in, b"SESSION": b"x"}
            line.send(attempt.written(put_in))
            if attempt.is_http:
                await self._check_answer(attempt, line)
            else:
                await self._check_refusal(attempt, line)
        finally:
            await line.close()
        await self.works()

    async def _check_answer(self, attempt: Attempt, line: RawConnection) -> None:
        """HTTP with only one interpretation: part of the answer is known, and the connection continues."""
        answer = await line.answer(attempt.method.decode())
        if answer is None and attempt.is_too_large:
            return  # the relay answered and closed while this end was still writing
        assert answer is not None, attempt
        expected = attempt.refusal()
        if expected is not None:
            self.seen["refused"] += 1
            assert answer.status == expected, (attempt, answer)
        else:
            self.seen["admitted"] += 1
            assert answer.status in STATUSES, (attempt, answer)
        if attempt.method != b"HEAD" and not attempt.target.startswith((b"/-/", b"//")):
            check(answer, attempt.body)
        is_over = answer.header("content-type") == "text/event-stream" or answer.header("connection") == "close"
        if not is_over:
            self.seen["went on"] += 1
            await self.is_answered(line)

    async def _check_refusal(self, attempt: Attempt, line: RawConnection) -> None:
        """Bytes that are not HTTP, or that end too early: refused or ignored, and never admitted without a token."""
        self.seen["no http"] += 1
        if attempt.is_cut_short:
            line.hang_up()
        answer = await line.answer("HEAD" if attempt.method == b"HEAD" else "GET")
        if answer is not None:
            assert answer.status in STATUSES | UNREADABLE | {401, 403, 421, 426}, (attempt, answer)
            assert attempt.is_welcome or answer.status >= 400 or answer.status == 204, (attempt, answer)


def echo(said: str) -> str:
    """Return the text."""
    return said


@pytest.mark.requirement("bad-input")
def test_anything_gets_one_proper_answer_and_the_next_request_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with asyncio.Runner() as runner:
        bench = runner.run(_bench(tmp_path))

        # A failing example is not shrunk: if the failure is a timeout, that would take hours.
        @settings(
            max_examples=EXAMPLES,
            phases=(Phase.explicit, Phase.generate),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(attempts)
        @example(Attempt(body=b"[" * 10_000))
        @example(
            Attempt(headers=((b"Mcp-Session-Id", b"SESSION"),), body=dumped(jsonrpc.result_message("unknown", {})))
        )
        @example(Attempt(headers=WEBSOCKET, body=b"{}"))
        @example(Attempt(b"GET", headers=WEBSOCKET, framing="chunked"))
        @example(Attempt(b"GET", headers=WEBSOCKET, framing="none"))
        @example(Attempt(b"GET", headers=(*WEBSOCKET, (b"X-Long", b"v" * 9_000)), framing="none"))
        @example(Attempt(headers=H2C, body=b"{}"))
        @example(Attempt(headers=H2C, body=b"{}", framing="chunked"))
        def attempt(attempt: Attempt) -> None:
            runner.run(bench.attempt(attempt))

        try:
            attempt()
        finally:
            runner.run(bench.stop())
    # Enough examples of each kind were tried, and no error occurred inside. Shares vary when there are few examples.
    least = EXAMPLES / 10 if EXAMPLES >= ALL_EXAMPLES else 0
    assert min(bench.seen[kind] for kind in ("refused", "admitted", "went on", "no http")) > least, bench.seen
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert bench.worker.errors == []


async def _bench(home: Path) -> Bench:
    bench = Bench(home)
    await bench.start()
    return bench


def check(answer: Answer, body: bytes) -> None:
    kind = answer.header("content-type")
    if kind != "application/json":
        assert answer.status in (200, 202, 204), answer
        return
    said = answer.json()
    for message in said if isinstance(said, list) else [said]:
        assert message["jsonrpc"] == "2.0"
        assert ("result" in message) is not ("error" in message)
        if "error" in message:
            error = message["error"]
            assert isinstance(error["code"], int) and error["message"]
    if not isinstance(said, list) and said["id"] is not None:
        assert said["id"] == orjson.loads(body)["id"]
