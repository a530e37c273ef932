"""The recorder detects messages of the relay and of browsers that violate the official models, in every direction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.cpython_worker import CPythonWorker
from tests.support.demo import Demo
from tests.support.hook.tap import Tap
from tests.support.link_worker import SyntheticWorker
from tests.support.recorder import Asked, ModelChecker
from tests.support.running_relay import ACCEPT, RunningRelay, modern

CALL = jsonrpc.request(1, "tools/call", {"name": "echo"})


def progress_without_value(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """Progress without a value."""
    worker.send(event, Kind.NOTE, jsonrpc.notification("notifications/progress", {}))
    worker.echo(event, message)


def result_with_wrong_content(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """A result with invalid content."""
    worker.answer(event, {"content": 7})


def violations(judge: ModelChecker) -> list[str]:
    """The direction and the receiver of each violation, which is then discarded."""
    return [line.partition(":")[0] for line in judge.discard_violations()]


async def test_a_result_and_a_notification_of_the_wrong_shape_are_detected(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        await relay.has_read("notes")
        _, headers = await relay.initialize("notes")
        await relay.http.post("/notes", json=CALL, headers=headers)
        # The relay sends initialize, initialized and one list request. Messages of a synthetic worker are not checked.
        assert (relay.recorder.checked, relay.recorder.wrong) == ({"client": 2, "server": 3}, [])
        worker.on_call = result_with_wrong_content
        await relay.http.post("/notes", json=CALL, headers=headers)
        await relay.call("notes", "echo")
        worker.on_call = progress_without_value
        await relay.http.post("/notes", json=CALL, headers=headers)
        assert violations(relay.recorder) == ["2025-11-25 to client", "2026-07-28 to client", "2025-11-25 to client"]


async def test_a_test_fails_when_its_relay_sent_a_wrong_message(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="2026-07-28 to client"):
        async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
            worker.on_call = result_with_wrong_content
            await relay.call("notes", "echo")


async def test_a_test_fails_when_a_relay_in_another_process_sent_a_wrong_message(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="2026-07-28 to client"):
        async with Demo(tmp_path, "notes", verb="serve") as relay:
            url = f"http://127.0.0.1:{relay.port}"
            async with SyntheticWorker(url, relay.token, "notes") as worker:
                worker.on_call = result_with_wrong_content
                async with httpx2.AsyncClient(trust_env=False, headers={"Accept": ACCEPT}) as http:
                    request = modern("tools/call", {"name": "echo"})
                    request["headers"]["Authorization"] = f"Bearer {relay.token}"
                    await http.post(f"{url}/notes", **request)


async def test_every_message_is_counted_in_a_relay_in_another_process_too(tmp_path: Path) -> None:
    async with Demo(tmp_path, "notes", verb="serve") as relay:
        async with CPythonWorker(f"http://127.0.0.1:{relay.port}", relay.token, "notes", tools()):
            async with relay.client("legacy") as client:
                await client.list_tools()
            async with relay.client() as client:
                await client.call_tool("echo", {"text": "hello"})
            assert (await relay.status())["servers"][0]["calls"] == 1
        await relay.stop()
        # The clients: initialize and a list; discover and a call, after which this client reads the tool's schema.
        assert [one.method for one in relay.recorder.asked if one.verb == "POST"] == [
            *("initialize", "notifications/initialized", "tools/list"),
            *("server/discover", "tools/call", "tools/list"),
        ]
        # The relay as a client: initialize, initialized and four lists, of which all but one are requests. A client
        # that subscribes early is notified of the lists.
        checked, told = relay.recorder.checked, sum(relay.recorder.notes.values())
        assert (checked["client"] - told, checked["server"], checked["relay"]) == (5, 6, 5 + 5)


async def test_a_wrong_message_from_a_browser_to_the_relay_is_detected(tmp_path: Path) -> None:
    """Only the relay reads the catalogue here, and no client would ever see the violation."""
    async with RunningRelay(tmp_path) as relay:
        worker = CPythonWorker(relay.url, relay.token, "notes", tools())
        worker.hub.resources = lambda: [{"name": "an address is missing"}]  # type: ignore[method-assign]
        async with worker:
            await relay.has_read("notes")
        assert violations(relay.recorder) == ["2025-11-25 to relay"]


@pytest.mark.parametrize(
    ("to", "method", "message"),
    [
        ("client", "ping", {"jsonrpc": "2.0", "id": 1}),
        ("client", "ping", [1]),
        ("client", None, jsonrpc.result_message(1, {})),
        ("client", None, jsonrpc.request(1, "tools/list")),
        ("client", None, jsonrpc.error_message(None, 1, "text") | {"jsonrpc": "1.0"}),
        ("relay", "tools/list", jsonrpc.result_message(1, {"tools": [{"name": "echo"}]})),
        ("server", None, jsonrpc.request(1, "initialize", {})),
        ("server", None, jsonrpc.notification("notifications/cancelled", {"requestId": {}})),
    ],
)
def test_the_checker_distinguishes_valid_from_invalid_messages(to: str, method: str | None, message: Any) -> None:
    judge = ModelChecker()
    judge.take({"to": to, "version": "2025-11-25", "method": method, "message": message})
    assert (len(judge.wrong), judge.checked) == (1, {to: 1})


@pytest.mark.parametrize("chunk", [1, 7, 1000])
async def test_a_stream_is_read_whole_however_it_is_cut(chunk: int) -> None:
    messages = [jsonrpc.notification("notifications/message", {"level": "info", "data": i}) for i in range(3)]
    text = "id: 0\nretry: 1\ndata: \n\n" + "".join(f"event: message\ndata: {json.dumps(one)}\n\n" for one in messages)

    async def app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(text), chunk):
            await send({"type": "http.response.body", "body": text[start : start + chunk].encode(), "more_body": True})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        """There is no client."""

    received: list[Any] = []
    scope = {"type": "http", "path": "/notes", "method": "POST", "headers": []}
    await Tap(app, received.append)(scope, receive, send)
    assert [one["message"] for one in received] == messages


async def test_requests_of_a_client_are_recorded_with_their_era(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        _, headers = await relay.initialize("notes", "2025-06-18")
        await relay.http.post("/notes", **modern("tools/list"))
        await relay.http.delete("/notes", headers=headers)
        agent = relay.http.headers["user-agent"]
        assert relay.recorder.asked == [
            Asked("POST", "/notes", agent, False, "initialize", "", ""),
            Asked("POST", "/notes", agent, False, "tools/list", "2026-07-28", "2026-07-28"),
            Asked("DELETE", "/notes", agent, True, None, "2025-06-18", ""),
        ]


def tools() -> Toolbox:
    box = Toolbox()

    @tool(toolbox=box)
    def echo(text: str) -> str:
        """Return the text."""
        return text

    return box
