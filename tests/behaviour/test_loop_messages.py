"""No message of a legacy client, a browser or a plain page takes more than 50 ms of the event loop in one callback.

`test_loop_time` measures plain calls with every shape. This file measures every other kind of message with the shapes
that took longest there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tabrelay.config.settings import MIB
from tabserver.wire.events import Opened, Received
from tabserver.wire.frames import Kind
from tests.behaviour.test_loop_time import BODY, JSON, LIMIT_MS, VALUES, Answering, slowest, warm_up
from tests.support.json_shapes import largest
from tests.support.measured_relay import MeasuredRelay, Slow, measured_relay
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import modern
from tests.support.waiting import BOUND_S

SLOWEST = ("objects with long keys", "towers of objects")
NOTE = 4 * MIB - 4_096  # characters of a browser's notification
PLAIN_NOTE = 2 * MIB - 4_096  # of a plain page's notification
BATCH = 64

Attack = Callable[[], Awaitable[None]]


async def measured(relay: MeasuredRelay, attacks: Mapping[str, Attack]) -> dict[str, Slow]:
    """The attacks that exceed the limit."""
    found = {name: await slowest(relay, attack) for name, attack in attacks.items()}
    return {name: each for name, each in found.items() if each.ms > LIMIT_MS}


async def session(relay: MeasuredRelay, version: str = "2025-11-25") -> dict[str, str]:
    """The headers of a new session whose client supports every question."""
    able: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
    params = {"protocolVersion": version, "capabilities": able, "clientInfo": {"name": "test", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    response = await relay.http.post("/notes", json=body)
    headers = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": version, **JSON}
    await relay.http.post("/notes", content='{"jsonrpc":"2.0","method":"notifications/initialized"}', headers=headers)
    return headers


def call(id: int, text: str) -> str:
    params = f'{{"name":"echo","arguments":{{"a":{text}}}}}'
    return f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}'


def note(text: str, method: str = "notifications/roots/list_changed") -> str:
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{{"a":{text}}}}}'


async def test_sessions_and_batches_of_clients(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0) as relay, Answering(relay.url, relay.token, "notes"):
        await warm_up(relay)
        alone, together = await session(relay), await session(relay, "2025-03-26")

        def post(text: str, headers: dict[str, str]) -> Attack:
            async def attack() -> None:
                await relay.http.post("/notes", content=text.encode(), headers=headers)

            return attack

        for shape in SLOWEST:
            text = largest(shape, BODY, VALUES)
            share = largest(shape, BODY // BATCH - 256, VALUES // BATCH - 256)
            one, many = [note(text)] + [note("1")] * 10, [note(share)] * BATCH
            calls = [call(number, share) for number in range(BATCH)]
            attacks = {
                "call": post(call(7, text), alone),
                "notification": post(note(text), alone),
                "answer": post(f'{{"jsonrpc":"2.0","id":"ask-1","result":{{"method":{text}}}}}', alone),
                "batch with one large notification": post(f"[{','.join(one)}]", together),
                "batch of notifications": post(f"[{','.join(many)}]", together),
                "batch of calls": post(f"[{','.join(calls)}]", together),
            }
            slow |= {f"{what} of {shape}": each for what, each in (await measured(relay, attacks)).items()}
    assert slow == {}


async def test_messages_of_clients_with_a_stream_of_2024(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0) as relay, Answering(relay.url, relay.token, "notes"):
        await warm_up(relay)
        async with relay.http.stream("GET", "/notes/sse") as stream:
            lines = stream.aiter_lines()
            address = [await anext(lines) for _ in range(2)][1].removeprefix("data: ")

            async def answered() -> None:
                async with asyncio.timeout(BOUND_S):
                    while not (await anext(lines)).startswith("data: "):
                        pass

            params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            await relay.http.post(address, json=hello)
            await answered()
            await relay.http.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            for shape in SLOWEST:
                text = largest(shape, BODY, VALUES)

                async def ask(text: str = text) -> None:
                    await relay.http.post(address, content=call(7, text).encode(), headers=JSON)
                    await answered()

                async def say(text: str = text) -> None:
                    await relay.http.post(address, content=note(text).encode(), headers=JSON)

                found = await measured(relay, {"call": ask, "notification": say})
                slow |= {f"{what} of {shape}": each for what, each in found.items()}
    assert slow == {}


class Talking(Answering):
    """Sends a message before each answer: `said` is a kind and a text."""

    said: tuple[Kind, str] = (Kind.NOTE, "")

    def _received(self, event: Received[str]) -> None:
        kind, text = self.said
        if event.kind is Kind.REQ and '"tools/call"' in event.payload[:300] and text:
            id = "asked" if kind is Kind.REQ else None
            self.link.send(event.channel, kind, text, self._now(), id=id, related=event.id)
        super()._received(event)

    async def notify_relay(self, text: str) -> None:
        """On the relay's own channel."""
        channel = next(each.channel for each in self.seen if isinstance(each, Opened))
        self.link.send(channel, Kind.NOTE, text, self._now())
        await self.flush()


async def test_notifications_and_questions_of_browsers(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0) as relay, Talking(relay.url, relay.token, "notes") as worker:
        await warm_up(relay)
        headers = await session(relay)

        async def ask() -> None:
            await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

        async def ask_in_session() -> None:
            await relay.http.post("/notes", content=call(7, "1").encode(), headers=headers)

        for shape in SLOWEST:
            text = largest(shape, NOTE, VALUES)
            tabs = note(f'1,"tabs":{text},"used":1', "$/tabrelay/tabs")

            async def show(tabs: str = tabs) -> None:
                await worker.notify_relay(tabs)
                await ask()

            asked = note(text, "sampling/createMessage").replace("{", '{"id":"asked",', 1)
            for what, kind, said, attack in (
                ("notification in a call", Kind.NOTE, note(text, "notifications/message"), ask),
                ("notification in a session's call", Kind.NOTE, note(text, "notifications/message"), ask_in_session),
                ("question", Kind.REQ, asked, ask_in_session),
                ("pin", Kind.NOTE, note(f'1,"tab":{text}', "$/tabrelay/pin"), ask),
                ("list that changed", Kind.NOTE, note(text, "notifications/tools/list_changed"), ask_in_session),
                ("tabs", Kind.NOTE, "", show),
            ):
                worker.said = (kind, said)
                slow |= await measured(relay, {f"{what} of {shape}": attack})
    assert slow == {}


class TalkingPage(ScriptedPage):
    """A plain page that sends a text before each answer."""

    said = ""

    async def flush(self) -> None:
        assert self._socket is not None
        while self._out:
            message = self._out.pop(0)
            if self.said and "result" in message and "content" in message["result"]:
                await self._socket.send(self.said)
            await self._socket.send(json.dumps(message))


async def test_notifications_and_questions_of_plain_pages(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0, plain=["notes"]) as relay:
        page = TalkingPage(relay.url, "notes")
        async with page:
            await warm_up(relay)
            headers = await session(relay)
            for shape in SLOWEST:
                text = largest(shape, PLAIN_NOTE, VALUES)
                for method in ("notifications/message", "notifications/tools/list_changed", "sampling/createMessage"):
                    id = '{"id":"asked",' if method.startswith("sampling") else "{"
                    page.said = note(text, method).replace("{", id, 1)

                    async def ask() -> None:
                        await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

                    async def ask_in_session() -> None:
                        await relay.http.post("/notes", content=call(7, "1").encode(), headers=headers)

                    attacks = {f"{method} of {shape}": ask, f"{method} of {shape} in a session": ask_in_session}
                    slow |= await measured(relay, attacks)
    assert slow == {}
