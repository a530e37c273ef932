"""Messages of an upstream with ids or text that can't be repeated: they are skipped, and no call or connection ends."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.specs import HttpSpec, StdioSpec
from tabserver.wire import jsonrpc
from tabserver.wire.jsonrpc import MAX_ID
from tests.support.fake_upstream import Reply, Upstream, result
from tests.support.running_relay import RunningRelay

LONG = "x" * 2_500_000
DIGITS = "1" * 5_000  # Python converts at most 4,300 digits to a number
HALF = "\ud800"
FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def note(method: str, **params: Any) -> dict[str, Any]:
    return jsonrpc.notification(f"notifications/{method}", params)


ODD_IDS: list[Any] = [LONG, "x" * (MAX_ID + 1), DIGITS, HALF, 10**400, 1.5, True, None, [1], {"a": 1}]
RESPONSES: list[dict[str, Any]] = [
    *({"jsonrpc": "2.0", "id": id, "result": {}} for id in ODD_IDS),
    *({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "no"}} for id in ODD_IDS),
]
MESSAGES: list[dict[str, Any]] = [
    *({"jsonrpc": "2.0", "id": id, "method": "ping"} for id in ODD_IDS),
    *({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": FORM} for id in ODD_IDS[:5]),
    *(note("progress", progressToken=id, progress=1) for id in ODD_IDS),
    *(note("cancelled", requestId=id) for id in ODD_IDS),
    *(note("tools/list_changed", _meta={SUBSCRIPTION: id}) for id in ODD_IDS),
    note("message", level="error", data=HALF),
    note("message", level=HALF, data=1),
    note("resources/updated", uri=HALF),
    note("message", level="error", data=LONG[:100_000] + HALF),
    jsonrpc.notification(HALF),
    jsonrpc.request(1, HALF),
]
CHILD = r"""
import json, pathlib, sys
lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
         "serverInfo": {"name": "n", "version": "1"}}
seen = 0
def write(message):
    sys.stdout.write(message + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if len(line) > 100_000:
        seen += 1
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": about}))
    elif method == "tools/list":
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}))
    elif method == "tools/call":
        if message["params"]["name"] == "odd":
            for odd in lines:
                write(odd)
        write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [], "seen": seen}}))
"""


async def check(relay: RunningRelay, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The call during which they are sent, and one after it, are answered; returns the second answer."""
    assert "result" in (await relay.call("far", "odd")).json()
    after = (await relay.call("far", "echo")).json()
    assert "result" in after
    [row] = (await relay.http.get("/-/status")).json()["servers"]
    assert row["state"] == "online"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []
    relay.recorder.discard_violations()
    given: dict[str, Any] = after["result"]
    return given


async def test_messages_of_a_child_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "odd").write_text("\n".join(json.dumps(message) for message in MESSAGES + RESPONSES))
    spec = StdioSpec("far", sys.executable, ("-I", "-S", "-c", CHILD, str(tmp_path / "odd")))
    async with RunningRelay(tmp_path / "home", specs=[spec]) as relay:
        assert (await check(relay, caplog))["seen"] == 0  # no long id was sent back


async def test_messages_of_an_http_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A response on the stream of a request answers that request, whatever its id is."""
    starts: list[str] = []

    async def initialize(reply: Reply) -> None:
        starts.append("")
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "u", "version": "1"}}
        await result(info)(reply)

    async def call(reply: Reply) -> None:
        id, odd = reply.seen.message["id"], reply.seen.message["params"]["name"] == "odd"
        answer = jsonrpc.result_message(id, {"content": []})
        await reply.stream()
        for message in [*(MESSAGES if odd else ()), answer]:
            await reply.chunk(f"data: {json.dumps(message)}\n\n".encode())
        await reply.end()

    async with (
        Upstream({"initialize": initialize, "tools/list": result({"tools": []}), "tools/call": call}) as server,
        RunningRelay(tmp_path, specs=[HttpSpec("far", server.url)]) as relay,
    ):
        await check(relay, caplog)
        assert len(starts) == 1
