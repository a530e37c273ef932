"""Tasks of upstreams, for clients of the same era: their owner gets them, and no other client."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tabrelay.calls.calls import Call
from tabrelay.peers.upstreams import task_owners
from tabrelay.peers.upstreams.task_owners import TaskOwners
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.e2e.test_tasks import Tasks, ask
from tests.support.child_specs import child
from tests.support.running_relay import RunningRelay, events
from tests.support.upstream_relays import text

JOB = {"name": "job", "arguments": {}}


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    specs = [child("legacy", "legacy"), child("modern", "modern")]
    async with RunningRelay(tmp_path_factory.mktemp("home"), specs=specs) as relay:
        yield relay


class Session:
    """A session of 2025-11-25. The Python SDK does not accept a task as the result of a call there."""

    def __init__(self, relay: RunningRelay, headers: dict[str, str], about: dict[str, Any]) -> None:
        self._relay, self._headers, self.about = relay, headers, about
        self._ids = itertools.count(1)

    @classmethod
    async def open(cls, relay: RunningRelay, token: str | None = None) -> Session:
        by = {"Authorization": f"Bearer {token or relay.token}"}
        response, headers = await relay.initialize("legacy", headers=by)
        [message] = [json.loads(text) for text in events(response.text) or [response.text]]
        return cls(relay, headers | by, message["result"])

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        response = await self._relay.http.post("/legacy", json=body, headers=self._headers)
        [message] = [json.loads(text) for text in events(response.text) or [response.text]]
        found: dict[str, Any] = message
        return found


@asynccontextmanager
async def client(relay: RunningRelay, server: str, token: str | None = None, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token or relay.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"{relay.url}/{server}", http_client=http), **options) as one,
    ):
        yield one


async def test_a_modern_client_gets_the_task_of_a_modern_upstream(relay: RunningRelay) -> None:
    tasks = Tasks()
    async with client(relay, "modern", extensions=[tasks]) as one:
        assert await text(one, "job") == "done later"
        id = tasks.begun.get_nowait()
    stranger = relay.tokens.issue_named("stranger", ["call"])
    async with client(relay, "modern", stranger, extensions=[Tasks()]) as other:
        with pytest.raises(MCPError, match="Task not found") as raised:
            await ask(other.session, "tasks/get", taskId=id)
        assert raised.value.code == -32602


async def test_a_session_gets_the_task_of_an_upstream_of_its_era(relay: RunningRelay) -> None:
    mine = await Session.open(relay)
    assert mine.about["capabilities"]["tasks"]["list"] == {}
    created = (await mine.ask("tools/call", **JOB, task={"ttl": 60_000}))["result"]["task"]
    assert (await mine.ask("tasks/get", taskId=created["taskId"]))["result"]["status"] == "completed"
    result = (await mine.ask("tasks/result", taskId=created["taskId"]))["result"]
    assert result["content"][0]["text"] == "done later"
    assert created["taskId"] in [task["taskId"] for task in (await mine.ask("tasks/list"))["result"]["tasks"]]
    other = await Session.open(relay, relay.tokens.issue_named("guest", ["call"]))
    assert (await other.ask("tasks/list"))["result"]["tasks"] == []
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        error = (await other.ask(method, taskId=created["taskId"]))["error"]
        assert error["code"] == -32602 and error["message"].startswith("Task not found")


async def test_tasks_are_not_translated(relay: RunningRelay) -> None:
    async with client(relay, "modern") as one:
        about = (await ask(one.session, "server/discover"))["capabilities"]
        assert "io.modelcontextprotocol/tasks" in about["extensions"]
        assert await text(one, "job") == "done at once"


def test_the_number_of_tasks_whose_owner_is_known_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_owners, "MOST_TASKS", 3)
    owners, caller = TaskOwners(), Caller(Era.MODERN, "2026-07-28", "token:a")
    for number in range(4):
        owners.received(Call("c", 1, "tools/call", "{}", caller), {"resultType": "task", "taskId": f"t{number}"})
    asked = Call("c", 1, "tasks/get", "{}", caller)
    refused = [owners.refusal(asked, {"taskId": f"t{number}"}) is not None for number in range(4)]
    assert refused == [True, False, False, False]
    owners.received(
        asked_for := Call("c", 1, "tools/call", "{}", caller), {"task": {"taskId": "t" * task_owners.MAX_TASK_ID}}
    )
    owners.received(asked_for, {"task": {"taskId": "t" * (task_owners.MAX_TASK_ID + 1)}})
    assert owners.refusal(asked, {"taskId": "t" * task_owners.MAX_TASK_ID}) is None
    assert (
        owners.refusal(asked, {"taskId": "t" * (task_owners.MAX_TASK_ID + 1)}) is not None
        and len(owners._principals) == 3
    )
    assert owners.refusal(asked, None) is not None and owners.refusal(asked, {"taskId": 5}) is not None
