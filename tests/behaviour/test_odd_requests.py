"""Params of any JSON type, for servers of every kind: the request is answered, and so is the next one."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.config.specs import StdioSpec
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.child_specs import child
from tests.support.cpython_worker import CPythonWorker
from tests.support.link_worker import ECHO_TOOL
from tests.support.odd_values import MEMBERS, META, nested
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import RunningRelay

ODD: list[Any] = [None, True, 5, "x", [[]], {"a": [1]}, nested(50)]
LISTEN = "subscriptions/listen"
METHODS = [
    *("ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read", "prompts/list"),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/get", "x", ""),
    *("completion/complete", "logging/setLevel", LISTEN, "tasks/get", "initialize"),
]
NOTES = [
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message"),
    *("notifications/roots/list_changed", "notifications/resources/updated", "notifications/tasks/status", "x"),
    *("notifications/tools/list_changed", "notifications/elicitation/complete", "$/tabrelay/pin", "$/tabrelay/tabs"),
]
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def shapes() -> Iterator[Any]:
    """Params: of each type, and with members of each type."""
    yield from ODD
    for value in ODD:
        yield dict.fromkeys(MEMBERS, value)
        yield {"name": "echo", "arguments": {}, "uri": "a:b", "_meta": value}
        yield {"name": "echo", "arguments": {}, "uri": "a:b", "_meta": dict.fromkeys(META, value)}


def echo_toolbox() -> Toolbox:
    box = Toolbox()

    @tool(toolbox=box)
    def echo() -> str:
        """Answer."""
        return "echo"

    return box


async def is_answered(relay: RunningRelay, server: str, said: dict[str, Any]) -> None:
    params = said["json"]["params"]
    is_sound = isinstance(params, dict) and isinstance(params.get("notifications"), dict)
    if said["json"]["method"] == LISTEN and (is_sound or server == "modern"):
        return  # a stream that does not end: the server of the test accepts any params
    try:
        async with asyncio.timeout(30):
            response = await relay.http.post(f"/{server}", **said)
    except TimeoutError:
        raise AssertionError(f"no answer: {said}") from None
    assert response.status_code < 500, (said, response.text)
    assert response.content, said


@pytest.mark.parametrize("server", ["browser", "plain", "legacy", "modern"])
async def test_params_of_any_shape_are_answered_by_servers_of_every_kind(
    tmp_path: Path, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    specs = [child(server, server)] if server in ("legacy", "modern") else []
    async with AsyncExitStack() as stack:
        relay = RunningRelay(tmp_path, specs=specs, plain=("plain",), greet_s=0.1, away_wait_s=0.2, rate_s=0)
        await stack.enter_async_context(relay)
        if server == "browser":
            worker = CPythonWorker(relay.url, relay.token, server, echo_toolbox())
            await stack.enter_async_context(worker)
        elif server == "plain":
            page = await stack.enter_async_context(ScriptedPage(relay.url, server))
        _, session = await relay.initialize(server)
        for method in METHODS:
            for said in shapes():
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": said}
                await is_answered(relay, server, {"json": body, "headers": {**session, **JSON}})
                if isinstance(said, dict):
                    modern = relay.modern(method, {**said, "_meta": {}})
                    if isinstance(said.get("_meta"), dict):
                        modern["json"]["params"]["_meta"] |= said["_meta"]
                    await is_answered(relay, server, modern)
        for method in NOTES:
            for said in shapes():
                note = {"jsonrpc": "2.0", "method": method, "params": said}
                response = await relay.http.post(f"/{server}", json=note, headers={**session, **JSON})
                assert response.status_code in (202, 400), note
        assert (await relay.call(server, "echo", {})).json()["result"]["content"]
        if server == "browser":
            assert worker.errors == [] and worker.transport.session.is_up
        elif server == "plain":
            assert page.close_code is None
        relay.recorder.discard_violations()
    assert tracebacks(caplog) == []


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info and record.levelno >= logging.ERROR]


# -- messages of upstreams ---------------------------------------------------------------------------------------------

SCRIPT = r"""
import json, sys
with open(sys.argv[1]) as file:
    notes = [line.strip() for line in file]
def say(message):
    print(message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None or method is None:
        continue
    if method == "initialize":
        about = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        info = {"name": "far", "version": "1"}
        say({"id": id, "result": {"protocolVersion": "2025-11-25", "serverInfo": info, "capabilities": about}})
    elif method == "tools/list":
        say({"id": id, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        for note in notes:
            say(note.replace('"ID"', json.dumps(id)))
        say({"id": id, "result": {"content": []}})
    else:
        say({"id": id, "error": {"code": -32601, "message": "no such method"}})
""".replace("TOOLS", repr([ECHO_TOOL]))


def said_by_servers() -> Iterator[dict[str, Any]]:
    for method in (*NOTES, *ODD):
        for params in (*shapes(), {"progressToken": "ID"}, {"progressToken": "ID", "progress": "x", "message": []}):
            yield {"jsonrpc": "2.0", "method": method, "params": params}
    ids: tuple[Any, ...] = (None, "x", [[]], {"a": [1]}, 987654, "ID", "x" * 2000)
    for id in ids:
        if id != "ID":
            yield {"jsonrpc": "2.0", "id": id, "error": id}
            yield {"jsonrpc": "2.0", "id": id}
        for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "x", 5, None):
            yield {"jsonrpc": "2.0", "id": id, "method": method, "params": id}
    yield from ({"jsonrpc": value} for value in ODD)


async def test_notes_and_questions_of_any_shape_do_not_end_a_connection_to_an_upstream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "said"
    lines = [json.dumps(message) for message in said_by_servers()]
    path.write_text("\n".join([*lines, *map(json.dumps, ODD), "{", "[]", "\x00"]))
    far = StdioSpec("far", sys.executable, ("-I", "-S", "-c", SCRIPT, str(path)))
    async with RunningRelay(tmp_path, specs=[far]) as relay:
        _, session = await relay.initialize("far")
        meta = {"_meta": {"progressToken": "t"}}
        params = {"name": "echo", "arguments": {}, **meta}
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}

        async def call(said: dict[str, Any]) -> httpx2.Response:
            async with asyncio.timeout(100):
                return await relay.http.post("/far", **said)

        for said in ({"json": body, "headers": {**session, **JSON}}, relay.modern("tools/call", params)):
            response = await call(said)
            assert response.status_code == 200 and '"content":[]' in response.text.replace(" ", ""), response.text[
                -500:
            ]
        [row] = (await relay.http.get("/-/status")).json()["servers"]
        assert row["state"] == "online", row
        relay.recorder.discard_violations()
    assert tracebacks(caplog) == []
