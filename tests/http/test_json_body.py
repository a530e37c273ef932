"""Bodies of the relay's own routes: what is too large, has too many values or nests too deeply is refused at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message

from tabrelay.errors import BadRequest
from tabrelay.http import json_body
from tabrelay.http.json_body import MAX_DEPTH, MAX_LARGE, MAX_SMALL, MAX_VALUES, LargeBody, SmallBody, refuse_body
from tests.support.asgi_client import Answer, http_scope, request

JSON = ("Content-Type", "application/json")


@pytest.fixture
def app() -> FastAPI:
    made = FastAPI()
    made.add_exception_handler(BadRequest, refuse_body)

    @made.post("/small")
    async def small(body: SmallBody) -> int:
        return len(body)

    @made.post("/large")
    async def large(body: LargeBody) -> int:
        return len(body)

    return made


async def send(app: FastAPI, path: str, body: bytes, kind: str = "application/json") -> Answer:
    return await request(app, "POST", path, [("Content-Type", kind)], body)


async def test_an_object_is_read(app: FastAPI) -> None:
    assert (await send(app, "/small", b'{"a": 1}')).body == b"1"
    assert (await send(app, "/large", b'{"a": "%s"}' % (b"a" * (MAX_LARGE - 20)), "application/json; x=y")).body == b"1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": 1',
        b'\xef\xbb\xbf{"a": 1}',
        b"null",
    ],
)
async def test_what_is_no_object_is_refused(app: FastAPI, body: bytes) -> None:
    answer = await send(app, "/small", body)
    assert answer.status == 400 and answer.json()["error"] == "invalid_request"


async def test_forms_of_other_pages_can_not_send_it(app: FastAPI) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""):
        assert (await send(app, "/small", b'{"a": 1}', kind)).status == 415


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/small", b'{"a": "%s"}' % (b"a" * MAX_SMALL), "too_large"),
        ("/large", b'{"a": "%s"}' % (b"a" * MAX_LARGE), "too_large"),
        ("/large", b'{"a": [%s1]}' % (b"1," * MAX_VALUES), "too_large"),
        ("/small", b'{"a": %s%s}' % (b"[" * MAX_DEPTH, b"]" * MAX_DEPTH), "too_deep"),
        ("/small", b'{"a": %s%s}' % (b"[" * 30_000, b"]" * 30_000), "invalid_request"),
    ],
)
async def test_what_exceeds_a_limit_is_refused(app: FastAPI, path: str, body: bytes, reason: str) -> None:
    answer = await send(app, path, body)
    assert answer.status in (400, 413) and answer.json()["error"] == reason


def pieces(size: int) -> Iterator[Message]:
    yield {"type": "http.request", "body": b'{"a": "', "more_body": True}
    while True:
        yield {"type": "http.request", "body": b"a" * size, "more_body": True}


async def statuses(app: FastAPI, messages: Iterator[Message]) -> tuple[int, int]:
    """The status of the response, and the number of messages that were read before it."""
    read = 0
    found: list[int] = []

    async def receive() -> Message:
        nonlocal read
        read += 1
        return next(messages)

    async def send(message: Message) -> None:
        found.append(message.get("status", 0))

    await app(http_scope("POST", "/large", [JSON]), receive, send)
    return found[0], read


async def test_a_body_without_an_end_is_refused_at_the_limit(app: FastAPI) -> None:
    tracemalloc.start()
    try:
        status, read = await statuses(app, pieces(64 * 1024))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 413 and read == MAX_LARGE // (64 * 1024) + 1
    assert peak < 2 * MAX_LARGE
    assert json_body._reading.used == 0


async def test_values_are_counted_while_a_body_arrives(app: FastAPI) -> None:
    def numbers() -> Iterator[Message]:
        yield {"type": "http.request", "body": b'{"a": [', "more_body": True}
        while True:
            yield {"type": "http.request", "body": b"1," * 32_000, "more_body": True}

    status, read = await statuses(app, numbers())
    assert status == 413 and read == MAX_VALUES // 32_000 + 2


async def test_bodies_that_are_being_read_have_a_limit_together(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    budget: Any = json_body._reading
    monkeypatch.setattr(budget, "used", budget.limit - 100_000)
    status, _ = await statuses(app, pieces(64 * 1024))
    assert status == 503
