"""No message within the limits takes more than 50 ms of the event loop thread's CPU time in one callback."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from tabrelay.config.settings import MIB, Settings
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.json_shapes import SHAPES, largest
from tests.support.link_worker import SyntheticWorker
from tests.support.measured_relay import MeasuredRelay, Slow, measured_relay
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import modern

LIMIT_MS = 50.0
TRIES = 12  # other load on the same core makes the CPU time longer
MOST = Settings().max_values
# A margin for the members around the values.
VALUES = MOST - 2_000
BODY = Settings().max_body - 4_096
ANSWER = 15 * MIB
JSON = {"Content-Type": "application/json"}
# As large as the limit of values permits; and as large as the limit of bytes permits, which is refused.
REFUSED = ("numbers", "objects with long keys", "keys", "strings of 70", "strings of marks", "towers")
TEXTS = [*((shape, VALUES) for shape in SHAPES), *((shape, None) for shape in REFUSED)]


class Answering(SyntheticWorker):
    """Answers lists and calls with the given text."""

    tools_text = "[]"
    result_text = '{"resultType":"complete","content":[]}'

    def _received(self, event: Received[str]) -> None:
        if event.kind is Kind.REQ and '"tools/list"' in event.payload[:300]:
            self._reply(
                event, f'{{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":{self.tools_text}}}'
            )
        elif event.kind is Kind.REQ and '"tools/call"' in event.payload[:300]:
            self._reply(event, self.result_text)
        elif event.kind is Kind.REQ:
            super()._received(event)

    def _reply(self, event: Received[str], result: str) -> None:
        self.send_text(event, Kind.RES, f'{{"jsonrpc":"2.0","id":{event.id},"result":{result}}}')


class AnsweringPage(ScriptedPage):
    """A plain page that answers calls with the given text."""

    result_text = "{}"

    def echo(self, message: dict[str, Any]) -> None:
        self.answer(message, {"content": [], "structuredContent": "PLACE"})

    async def flush(self) -> None:
        assert self._socket is not None
        while self._out:
            await self._socket.send(json.dumps(self._out.pop(0)).replace('"PLACE"', self.result_text))


async def slowest(relay: MeasuredRelay, attack: Callable[[], Awaitable[None]]) -> Slow:
    """The slowest callback of an attack, in the fastest of several tries, because other load on the machine adds to
    it."""
    found: list[Slow] = []
    for _ in range(TRIES):
        await relay.reset()
        await attack()
        found.append((await relay.longest())[0])
        if found[-1].ms < LIMIT_MS * 0.9:
            break
    return min(found, key=lambda each: each.ms)


async def warm_up(relay: MeasuredRelay) -> None:
    """Runs once whatever happens only once in a process."""
    for _ in range(20):
        await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))
        await relay.http.post("/notes", **modern("tools/list"))


def with_arguments(text: str, **call: Any) -> dict[str, Any]:
    """A request whose arguments are this text, as keyword arguments of `http.post`."""
    request = modern("tools/call", {"name": "echo", "arguments": {}}, **call)
    body = json.dumps(request["json"]).replace('"arguments": {}', f'"arguments": {{"a": {text}}}')
    return {"content": body.encode(), "headers": {**request["headers"], **JSON}}


async def test_requests_of_clients(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with (
        measured_relay(tmp_path, rate_s=0) as relay,
        Answering(relay.url, relay.token, "notes"),
    ):
        await warm_up(relay)
        for shape, values in TEXTS:
            request = with_arguments(largest(shape, BODY, values))

            async def post(request: dict[str, Any] = request) -> None:
                await relay.http.post("/notes", **request)

            slow[f"{shape}, {values}"] = await slowest(relay, post)
    assert {name: each for name, each in slow.items() if each.ms > LIMIT_MS} == {}


async def test_results_of_browsers(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with (
        measured_relay(tmp_path, rate_s=0) as relay,
        Answering(relay.url, relay.token, "notes") as worker,
    ):
        await warm_up(relay)

        async def call() -> None:
            await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

        for shape, values in TEXTS:
            text = largest(shape, ANSWER, values)
            worker.result_text = f'{{"resultType":"complete","content":[],"structuredContent":{text}}}'
            slow[f"{shape}, {values}"] = await slowest(relay, call)
    assert {name: each for name, each in slow.items() if each.ms > LIMIT_MS} == {}


async def test_lists_of_browsers(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with (
        measured_relay(tmp_path, rate_s=0, max_tools=5000, max_list=16 * MIB) as relay,
        Answering(relay.url, relay.token, "notes") as worker,
    ):
        await warm_up(relay)

        async def ask() -> None:
            await relay.http.post("/notes", **modern("tools/list"))

        for shape, values in TEXTS:
            worker.tools_text = largest(shape, 4 * MIB - 4_096, values)
            slow[f"{shape}, {values}"] = await slowest(relay, ask)
            text = largest(shape, 4 * MIB - 4_096, VALUES)
            worker.tools_text = f'[{{"name":"a","inputSchema":{{"properties":{text}}}}}]'
            slow[f"{shape} in one schema"] = await slowest(relay, ask)
    assert {name: each for name, each in slow.items() if each.ms > LIMIT_MS} == {}


async def test_answers_of_plain_pages(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}

    async with measured_relay(tmp_path, rate_s=0, plain=["notes"]) as relay, AnsweringPage(relay.url, "notes") as made:
        page = cast(AnsweringPage, made)
        page.on_call = lambda page, message: page.echo(message)
        await warm_up(relay)

        async def call() -> None:
            await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

        for shape, values in TEXTS:
            page.result_text = largest(shape, ANSWER, values)
            slow[f"answer of {shape}, {values}"] = await slowest(relay, call)
            page.result_text = "{}"
            request = with_arguments(largest(shape, BODY, values))

            async def post(request: dict[str, Any] = request) -> None:
                await relay.http.post("/notes", **request)

            slow[f"request of {shape}, {values}"] = await slowest(relay, post)
    assert {name: each for name, each in slow.items() if each.ms > LIMIT_MS} == {}
