"""The 2026-07-28 face, over real HTTP, with a synthetic worker."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import Kind
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import pause


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=0.2, servers=("notes",)) as relay:
        yield relay


@pytest.mark.requirement("modern-json-or-stream")
async def test_a_call_reaches_the_worker_and_its_answer_comes_back_as_json(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        response = await relay.call("notes", "echo", {"x": 1})
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        body = response.json()
        assert body["id"] == 1
        assert body["result"]["content"][0]["text"] == '{"x": 1}'
        assert worker.calls[0]["params"]["name"] == "echo"


@pytest.mark.requirement("modern-json-or-stream")
async def test_a_notice_turns_the_answer_into_a_stream_without_ids(relay: RunningRelay) -> None:
    def progress_then_answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}}
        worker.send(event, Kind.NOTE, note)
        worker.echo(event, message)

    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = progress_then_answer
        response = await relay.call("notes", "echo", {}, _meta={"progressToken": "t"})
    assert response.headers["content-type"] == "text/event-stream"
    first, last = map(json.loads, events(response.text))
    assert first["method"] == "notifications/progress"
    assert last["id"] == 1
    assert "id: " not in response.text


@pytest.mark.requirement("modern-closing-cancels")
async def test_a_disconnect_cancels_the_call(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = lambda worker, event, message: None
        with pytest.raises(httpx2.ReadTimeout):
            call = relay.modern("tools/call", {"name": "echo", "arguments": {}})
            await relay.http.post("/notes", timeout=httpx2.Timeout(30, read=2), **call)
        await worker.until(lambda: any(isinstance(event, Closed) for event in worker.seen))
        assert (await relay.http.get("/-/status")).json()["servers"][0]["in_flight"] == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"Mcp-Method": "tools/list"}, 400, -32020),
        ({"Mcp-Method": None}, 400, -32020),
        ({"Mcp-Name": "other"}, 400, -32020),
        ({"Mcp-Name": None}, 400, -32020),
        ({"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
        ({"MCP-Protocol-Version": None}, 400, -32020),
        ({"Mcp-Name": "=?base64?!!?="}, 400, -32020),
    ],
)
@pytest.mark.requirement("modern-headers-agree")
async def test_headers_that_disagree_with_the_body_are_refused(
    relay: RunningRelay, change: dict[str, str | None], status: int, code: int
) -> None:
    request = relay.modern("tools/call", {"name": "echo", "arguments": {}}, id="r-7")
    for name, value in change.items():
        if value is None:
            del request["headers"][name]
        else:
            request["headers"][name] = value
    response = await relay.http.post("/notes", **request)
    assert response.status_code == status
    body = response.json()
    assert body["error"]["code"] == code
    assert body["id"] == "r-7"


@pytest.mark.requirement("modern-headers-agree")
async def test_a_name_in_base64_is_understood(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes"):
        request = relay.modern("tools/call", {"name": "echo", "arguments": {}})
        request["headers"]["Mcp-Name"] = f"=?base64?{base64.b64encode(b'echo').decode()}?="
        assert (await relay.http.post("/notes", **request)).status_code == 200


@pytest.mark.requirement("modern-headers-agree")
async def test_blanks_around_header_values_do_not_count(relay: RunningRelay) -> None:
    request = relay.modern("tools/list")
    body = json.dumps(request["json"])
    lines = [
        "POST /notes HTTP/1.1",
        f"Host: 127.0.0.1:{relay.port}",
        f"Authorization: Bearer {relay.token}  ",
        "Accept: */*",
        "Content-Type: application/json",
        "MCP-Protocol-Version: \t2026-07-28 ",
        "Mcp-Method:   tools/list \t",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        body,
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write("\r\n".join(lines).encode())
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()


@pytest.mark.requirement("modern-headers-agree")
async def test_a_duplicate_routing_header_is_refused(relay: RunningRelay) -> None:
    request = relay.modern("tools/list")
    headers = [*request["headers"].items(), ("Mcp-Method", "tools/list")]
    response = await relay.http.post("/notes", json=request["json"], headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


@pytest.mark.requirement("modern-unsupported-version")
async def test_an_unknown_version_is_answered_with_the_supported_ones(relay: RunningRelay) -> None:
    request = relay.modern("tools/list")
    request["json"]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2031-01-01"
    request["headers"]["MCP-Protocol-Version"] = "2031-01-01"
    response = await relay.http.post("/notes", **request)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, -32022)
    assert error["data"]["supported"] == ["2026-07-28"]
    assert error["data"]["requested"] == "2031-01-01"


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
@pytest.mark.requirement("modern-envelope")
async def test_an_incomplete_envelope_is_refused(relay: RunningRelay, missing: str) -> None:
    request = relay.modern("tools/list")
    del request["json"]["params"]["_meta"]["io.modelcontextprotocol/" + missing]
    response = await relay.http.post("/notes", **request)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


@pytest.mark.requirement("modern-method-not-found")
async def test_a_removed_or_unknown_method_is_404_with_a_json_rpc_body(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes"):
        for method in ("initialize", "ping", "no/such"):
            response = await relay.http.post("/notes", **relay.modern(method))
            assert (response.status_code, response.json()["error"]["code"]) == (404, -32601), method


@pytest.mark.requirement("modern-notifications")
async def test_a_notification_is_acknowledged_and_dropped(relay: RunningRelay) -> None:
    request = relay.modern("notifications/cancelled")
    del request["json"]["id"]
    response = await relay.http.post("/notes", **request)
    assert (response.status_code, response.content) == (202, b"")


@pytest.mark.parametrize("id", [None, 1.5, True, {}, []])
@pytest.mark.requirement("request-id-types")
async def test_an_id_of_another_type_is_refused(relay: RunningRelay, id: object) -> None:
    request = relay.modern("tools/list")
    request["json"]["id"] = id
    response = await relay.http.post("/notes", **request)
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
    assert response.json()["id"] is None


@pytest.mark.requirement("modern-post-only")
async def test_get_and_delete_are_not_modern_methods(relay: RunningRelay) -> None:
    for method in ("GET", "DELETE"):
        response = await relay.http.request(method, "/notes", headers={"MCP-Protocol-Version": "2026-07-28"})
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


@pytest.mark.requirement("discovery-while-away")
async def test_discovery_answers_while_the_browser_is_away_and_calls_fail_with_the_reason(relay: RunningRelay) -> None:
    worker = SyntheticWorker(relay.url, relay.token, "notes")
    async with worker:
        await worker.until(lambda: any('"tools/list"' in getattr(event, "payload", "") for event in worker.seen))
        async with asyncio.timeout(60):
            while not (await relay.http.get("/-/status")).json()["servers"][0]["tools"]:
                await pause()
    listed = (await relay.http.post("/notes", **relay.modern("tools/list"))).json()["result"]
    assert [tool["name"] for tool in listed["tools"]] == ["echo"]
    assert listed["resultType"] == "complete"
    discovered = (await relay.http.post("/notes", **relay.modern("server/discover"))).json()["result"]
    assert discovered["supportedVersions"] == ["2026-07-28"]
    response = await relay.call("notes", "echo")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (200, -31010)
    assert error["data"] | {"retry_after_ms": 0} == {
        "reason": "server_offline",
        "delivered": "no",
        "retryable": True,
        "server": "notes",
        "retry_after_ms": 0,
        "help": "TR101",
    }
    assert response.headers["link"] == '</-/docs/reference/errors/#tr101>; rel="help"'
    assert 'Server "notes" is not connected' in error["message"]


@pytest.mark.requirement("errors")
async def test_an_unknown_name_is_404_with_how_to_declare_it(relay: RunningRelay) -> None:
    response = await relay.call("unknown", "echo")
    assert (response.status_code, response.json()["error"]["code"]) == (404, -31016)
    assert "tabrelay serve unknown" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, -32700),
        (b'{"a": NaN}', {}, 400, -32700),
        (b"\xff\xfe", {}, 400, -32700),
        (b"[" * 200 + b"]" * 200, {}, 400, -32600),
        (b"{}", {"Content-Type": "text/plain"}, 415, -32600),
        (b"{}", {"Accept": "text/html"}, 406, -32600),
        (b" " * (4 * 1024 * 1024 + 1), {}, 413, -32600),
    ],
)
@pytest.mark.requirement("bad-input")
async def test_bad_input_gets_a_clear_error_and_the_next_request_works(
    relay: RunningRelay, body: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    response = await relay.http.post("/notes", content=body, headers={"Content-Type": "application/json", **headers})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert (await relay.http.post("/notes", **relay.modern("tools/list"))).status_code == 200
