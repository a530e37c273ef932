"""Breakpoints: calls and results are held, edited, released and refused; within their deadline, and while a console is
open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.observe.capture import breakpoints
from tabrelay.observe.capture.breakpoints import MAX_BREAKPOINTS
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.console import OpenConsole, open_console
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay

Row = dict[str, Any]


class Served:
    """`seen`: what the tool got."""

    def __init__(self, relay: RunningRelay, console: OpenConsole, seen: list[Row]) -> None:
        self.relay, self.console, self.seen = relay, console, seen
        self._read = 0

    async def put(self, *breakpoints: Row, status: int = 200) -> Row:
        response = await self.relay.http.put("/-/console/breakpoints", json={"breakpoints": list(breakpoints)})
        assert response.status_code == status, response.text
        found: Row = response.json()
        return found

    async def held(self, count: int = 1) -> list[Row]:
        """Wait until so many are held."""
        while True:
            events = self.console.events
            found: list[Row] = (await self.relay.http.get("/-/console/breakpoints")).json()["held"]
            if len(found) == count:
                return found
            seen = len(events)
            await self.console.until(lambda seen=seen: len(self.console.events) > seen)  # type: ignore[misc]

    async def decide(self, id: str, status: int = 204, **body: Any) -> None:
        response = await self.relay.http.post(f"/-/console/held/{id}", json=body)
        assert response.status_code == status, response.text

    async def shown(self, id: str) -> Row:
        found: Row = (await self.relay.http.get(f"/-/console/held/{id}")).json()
        return found

    def call(self, text: str = "one", tool: str = "echo", **more: Any) -> asyncio.Task[httpx2.Response]:
        return asyncio.create_task(self.relay.call("notes", tool, {"text": text, **more}))


def text_of(response: httpx2.Response) -> str:
    return str(response.json()["result"]["content"][0]["text"])


@asynccontextmanager
async def served(home: Path, **settings: Any) -> AsyncIterator[Served]:
    box = Toolbox()
    seen: list[Row] = []

    @tool(toolbox=box)
    def echo(text: str, password: str = "") -> str:
        seen.append({"text": text, "password": password})
        return f"{text} Bearer abcdefghijklmnopqrstuvwxyz0123456789"

    @tool(toolbox=box)
    def other(text: str) -> str:
        return text

    async with RunningRelay(home, **settings) as relay, CPythonWorker(relay.url, relay.token, "notes", box):
        await relay.has_read("notes", lambda row: len(row["tools"]) == 2)
        async with open_console(relay) as console:
            yield Served(relay, console, seen)


async def test_a_held_call_is_edited_and_the_tool_gets_what_was_edited(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        shown = await notes.put({"at": "call", "server": "no*", "name": "echo", "client": ""})
        assert shown == {"breakpoints": [{"at": "call", "server": "no*", "name": "echo"}], "held": []}
        calling = notes.call(password="secret-4711")
        [held] = await notes.held()
        assert held["at"] == "call" and held["server"] == "notes" and held["name"] == "echo"
        assert held["since"] < held["until"] and not calling.done() and not notes.seen
        row = await notes.console.row(id=held["call"], held=True)
        assert row["state"] == "waiting"
        params = (await notes.shown(held["id"]))["params"]
        assert params["arguments"] == {"text": "one", "password": "[redacted]"}
        params["arguments"]["text"] = "two"
        await notes.decide(held["id"], do="release", params=params)
        assert text_of(await calling).startswith("two")
        assert notes.seen == [{"text": "two", "password": "secret-4711"}]
        detail = await notes.console.detail(id=held["call"], state="done", held=False)
        assert [event["kind"] for event in detail["events"]] == ["held", "edited"]
        assert detail["request"]["params"]["arguments"]["text"] == "two"
        [wait] = [span for span in detail["spans"] if span["name"] == "wait"]
        assert wait["why"] == "It is held by a breakpoint of the console."
        assert text_of(await notes.call(tool="other")) == "one"  # no breakpoint matches it


async def test_a_held_result_is_edited_released_or_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.put({"at": "result", "name": "echo"})
        calling = notes.call()
        [held] = await notes.held()
        shown = await notes.shown(held["id"])
        assert held["at"] == "result" and shown["result"]["content"][0]["text"] == "one Bearer [redacted]"
        shown["result"]["content"].append({"type": "text", "text": "more"})
        await notes.decide(held["id"], do="release", result=shown["result"])
        content = (await calling).json()["result"]["content"]
        assert content[0]["text"].endswith("0123456789") and content[1]["text"] == "more"
        calling = notes.call()
        [held] = await notes.held()
        await notes.decide(held["id"], do="release")
        assert text_of(await calling).startswith("one")
        calling = notes.call()
        [held] = await notes.held()
        await notes.decide(held["id"], do="release", error={"code": -32000, "message": "so it is"})
        assert (await calling).json()["error"] == {"code": -32000, "message": "so it is"}
        calling = notes.call()
        [held] = await notes.held()
        await notes.decide(held["id"], do="refuse", message="not today")
        error = (await calling).json()["error"]
        assert error["message"] == "not today" and error["data"]["delivered"] == "unknown"
        row = await notes.console.row(id=held["call"], state="refused")
        assert (
            row["error"] == {"reason": "refused_in_console", "message": "not today"} and row["delivered"] == "unknown"
        )


async def test_a_refused_call_does_not_run(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.put({})
        calling = notes.call()
        [held] = await notes.held()
        await notes.decide(held["id"], do="refuse")
        error = (await calling).json()["error"]
        assert error["data"]["reason"] == "refused_in_console" and error["data"]["delivered"] == "no" and not notes.seen
        await notes.decide(held["id"], 404, do="release")


async def test_a_held_call_and_a_held_result_end_at_the_deadline_of_the_call(tmp_path: Path) -> None:
    async with served(tmp_path, call_deadline_s=0.5) as notes:
        for at, delivered in (("call", "no"), ("result", "unknown")):
            await notes.put({"at": at})
            began = time.monotonic()
            data = (await notes.call()).json()["error"]["data"]
            assert (data["reason"], data["delivered"]) == ("timeout", delivered)
            assert time.monotonic() - began >= 0.5
            assert await notes.held(0) == []
        assert len(notes.seen) == 1


async def test_everything_is_released_when_the_last_console_closes_or_asks_for_it(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.put({"at": "call"})
        calling = notes.call()
        await notes.held()
        assert (await notes.relay.http.post("/-/console/release")).status_code == 204
        await calling
        calling = notes.call()
        await notes.held()
        notes.console.close()
        assert text_of(await calling).startswith("one")
        assert text_of(await notes.call()).startswith("one")  # the breakpoint is gone too
        found = (await notes.relay.http.get("/-/console/breakpoints")).json()
        assert found == {"breakpoints": [], "held": []}
        assert (await notes.put({}, status=409))["error"] == "not_capturing"


async def test_a_caller_that_disconnects_is_not_held_any_more(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.put({"at": "result"})
        calling = notes.call()
        await notes.held()
        calling.cancel()
        await notes.held(0)


async def test_breakpoints_and_held_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakpoints, "MAX_HELD", 5)  # a client has fewer connections than the usual bound
    async with served(tmp_path) as notes:
        assert (await notes.put(*[{}] * (MAX_BREAKPOINTS + 1), status=400))["error"] == "invalid_request"
        for wrong in ({"at": "never"}, {"tool": "echo"}, {"name": 1}, {"name": "x" * 300}):
            assert (await notes.put(wrong, status=400))["error"] == "invalid_request"
        await notes.put({"at": "call"})
        held = [notes.call() for _ in range(5)]
        await notes.held(5)
        assert text_of(await notes.call()).startswith("one")
        await notes.relay.http.post("/-/console/release")
        await asyncio.gather(*held)


async def test_what_is_released_must_be_a_message(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        await notes.put({"at": "call"})
        calling = notes.call()
        [held] = await notes.held()
        bodies: tuple[Row, ...] = ({"do": "wait"}, {"do": "release", "params": []}, {"do": "release", "result": {}}, {})
        for body in bodies:
            await notes.decide(held["id"], 400, **body)
        await notes.decide(held["id"], do="release")
        await calling


async def test_a_token_for_other_servers_holds_and_sees_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as notes:
        token = notes.relay.tokens.issue_named("other", ["manage"], ["other"])
        headers = {"Authorization": f"Bearer {token}"}
        body: Row = {"breakpoints": [{}]}
        assert (await notes.relay.http.put("/-/console/breakpoints", json=body, headers=headers)).status_code == 200
        assert text_of(await notes.call()).startswith("one")
        await notes.put({"at": "call"})
        calling = notes.call()
        [held] = await notes.held()
        shown = (await notes.relay.http.get("/-/console/breakpoints", headers=headers)).json()
        assert shown["held"] == []
        path = f"/-/console/held/{held['id']}"
        assert (await notes.relay.http.get(path, headers=headers)).status_code == 404
        assert (await notes.relay.http.post(path, json={"do": "release"}, headers=headers)).status_code == 404
        assert (await notes.relay.http.post("/-/console/release", headers=headers)).status_code == 204
        assert not calling.done()
        await notes.decide(held["id"], do="release")
        await calling
