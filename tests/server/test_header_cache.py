"""Header cache: which header blocks are equal, and that requests with equal ones are still checked for token and
rate."""

from __future__ import annotations

from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tabrelay.server.header_cache import header_cache_of
from tests.support.asgi_client import Answer
from tests.support.link_worker import SyntheticWorker
from tests.support.raw_http import RawConnection
from tests.support.running_relay import ACCEPT, RunningRelay, modern

HEAD = "POST /notes HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nX: y\r\n\r\n"


def request(body: bytes, head: str = HEAD) -> bytes:
    return head.format(len(body)).encode() + body


@given(st.binary(max_size=300), st.lists(st.binary(max_size=300)))
def test_another_body_of_any_length_is_found(first: bytes, others: list[bytes]) -> None:
    header = header_cache_of(request(first))
    assert header is not None
    for other in others:
        assert header.body(request(other)) == other


@given(st.binary(min_size=1, max_size=40), st.booleans(), st.data())
def test_whatever_differs_by_one_byte_of_its_header_is_another(
    body: bytes, is_remembered: bool, data: st.DataObject
) -> None:
    header = header_cache_of(request(body))
    assert header is not None
    same = request(body)
    assert not is_remembered or header.body(same) == body
    at = data.draw(st.integers(0, len(same) - len(body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != same[at]))
    other = same[:at] + bytes([byte]) + same[at + 1 :]
    # Only the length may differ, and then the body must have that length.
    assert header.body(other) is None


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=400), st.booleans())
def test_what_is_not_whole_or_has_something_behind_it_is_not_taken(
    body: bytes, more: bytes, is_remembered: bool
) -> None:
    header = header_cache_of(request(body))
    assert header is not None
    whole = request(body)
    assert not is_remembered or header.body(whole) == body
    assert header.body(whole + more) is None
    for end in range(len(whole)):
        assert header.body(whole[:end]) is None


def test_no_header_is_cached_with_two_lengths_or_an_unusual_one() -> None:
    assert header_cache_of(request(b"abc", HEAD.replace("X: y", "Content-length: 3"))) is None
    assert header_cache_of(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") is None
    assert header_cache_of(request(b"abc")[:-1]) is None
    assert header_cache_of(request(b"abc") + b"d") is None
    assert header_cache_of(request(b"x" * 100_000)) is None
    # It may be part of a value, where it means nothing.
    odd = header_cache_of(request(b"abc", HEAD.replace("X: y", "X: content-length: 9")))
    assert odd is not None and odd.body(request(b"abcd", HEAD.replace("X: y", "X: content-length: 9"))) == b"abcd"


def call(relay: RunningRelay, id: int, text: str, token: str | None = None, name: str = "echo") -> bytes:
    message = modern("tools/call", {"name": name, "arguments": {"text": text}}, id=id)
    lines = [
        "POST /notes HTTP/1.1",
        f"Host: {relay.url.removeprefix('http://')}",
        f"Authorization: Bearer {token or relay.token}",
        f"Accept: {ACCEPT}",
        *("Content-Type: application/json", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"),
        "Mcp-Name: echo",
    ]
    body = orjson.dumps(message["json"])
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class Client:
    """One connection; every answer is that of the request before it."""

    def __init__(self, relay: RunningRelay) -> None:
        self._relay = relay
        self._connection = RawConnection(relay.port)

    async def __aenter__(self) -> Client:
        await self._connection.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._connection.close()

    async def ask(self, data: bytes) -> Answer:
        self._connection.send(data)
        answer = await self._connection.answer()
        assert answer is not None
        return answer

    async def ask_until_again(self, text: str, token: str | None = None) -> None:
        """Until one was not parsed: on a busy machine the previous one may have left the fast path."""
        before = self._relay.recorder.tap.swift_again
        for id in range(100):
            answer = await self.ask(call(self._relay, id, text, token))
            assert answer.status == 200 and answer.json()["id"] == id
            if self._relay.recorder.tap.swift_again > before:
                return
        raise AssertionError("no request was taken for one that came before")


async def test_the_next_request_with_the_same_header_is_answered_with_its_own_result(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        Client(relay) as client,
    ):
        await client.ask_until_again("first")
        for id, text in ((1001, "a"), (1002, "bb" * 400), (1003, "")):
            answer = await client.ask(call(relay, id, text))
            assert answer.json()["id"] == id
            assert f'"{text}"' in answer.json()["result"]["content"][0]["text"]


async def test_a_body_that_contradicts_the_header_that_came_before_is_refused(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        Client(relay) as client,
    ):
        await client.ask_until_again("first")
        answer = await client.ask(call(relay, 7, "x", name="other"))
        assert (answer.status, answer.json()["error"]["code"]) == (400, -32020)
        assert (await client.ask(call(relay, 8, "x"))).status == 200


async def test_a_token_that_was_revoked_is_not_taken_because_its_header_came_before(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        Client(relay) as client,
    ):
        token = relay.tokens.issue_named("guest", ["call"])
        await client.ask_until_again("first", token)
        relay.tokens.revoke(lambda grant: grant.name == "guest")
        assert (await client.ask(call(relay, 9, "x", token))).status == 401


async def test_the_rate_counts_requests_that_are_not_parsed_too(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",), rate_s=0.001, rate_burst=20) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        Client(relay) as client,
    ):
        statuses = [(await client.ask(call(relay, id, "x"))).status for id in range(25)]
        assert statuses[0] == 200 and statuses[-1] == 429
