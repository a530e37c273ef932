"""Ids that are too long, and text that is not Unicode: both are refused on arrival, without effect on other callers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tabrelay.bridge.messages import Malformed, parse
from tabrelay.calls.calls import PLAIN_RESULT, Call
from tabrelay.errors import BadAnswer, BrowserGone
from tabrelay.observe.call_log import CallLog
from tabserver.wire import frames, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.events import Received, Violation
from tabserver.wire.frames import SUBPROTOCOL, Caller
from tabserver.wire.jsonrpc import MAX_ID
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

LONG = "i" * 2_500_000
TOO_LONG = "i" * (MAX_ID + 1)
LONGEST = "i" * MAX_ID


DEEP_ID = "["  # in JSON: an array that nests as deeply as can be parsed


def as_json(id: Any) -> str:
    return "[" * 900 + "]" * 900 if id is DEEP_ID else json.dumps(id)


def refusal(response: Any) -> tuple[int, Any, int, bool]:
    answer = response.json()
    return response.status_code, answer["id"], answer["error"]["code"], f"{MAX_ID:,}" in answer["error"]["message"]


async def test_a_long_id_is_refused_and_the_browsers_link_goes_on(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        _, session = await relay.initialize("notes", "2025-03-26")
        fine = jsonrpc.request(1, "tools/call", {"name": "echo", "arguments": {}})
        for id in (LONG, TOO_LONG):
            for _ in range(3):  # also with the header block of a request on the fast path
                answer = await relay.call("notes", "echo", {})
                assert answer.status_code == 200
                said = relay.modern("tools/call", {"name": "echo", "arguments": {}}, id=id)
                assert refusal(await relay.http.post("/notes", **said)) == (400, None, -32600, True)
                assert (await relay.http.post("/notes", json=fine, headers=session)).status_code == 200
                answer = await relay.http.post("/notes", json={**fine, "id": id}, headers=session)
                assert refusal(answer) == (400, None, -32600, True)
            batch = [{**fine, "id": 3}, {**fine, "id": id}]
            assert refusal(await relay.http.post("/notes", json=batch, headers=session)) == (400, None, -32600, True)
            answer = await relay.http.post("/notes", json=jsonrpc.result_message(id, {}), headers=session)
            assert refusal(answer) == (400, None, -32600, True)
            begin = jsonrpc.request(id, "initialize", {"protocolVersion": "2025-11-25"})
            assert refusal(await relay.http.post("/notes", json=begin)) == (400, None, -32600, True)
        assert worker.close_code is None
        said = relay.modern("tools/call", {"name": "echo", "arguments": {}}, id=LONGEST)
        assert (await relay.http.post("/notes", **said)).json()["id"] == LONGEST
        answer = await relay.http.post("/notes", json={**fine, "id": LONGEST}, headers=session)
        assert answer.json()["id"] == LONGEST


async def test_a_long_progress_token_is_refused(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        _, session = await relay.initialize("notes")
        for token, status in ((LONGEST, 200), (TOO_LONG, 400), (LONG, 400)):
            params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": token}}
            for _ in range(2):
                assert (await relay.http.post("/notes", **relay.modern("tools/call", params))).status_code == status
                body = jsonrpc.request(1, "tools/call", params)
                assert (await relay.http.post("/notes", json=body, headers=session)).status_code == status


async def test_a_plain_page_that_asks_under_a_long_id_gets_an_error(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, plain=("notes",), greet_s=0.1) as relay,
        ScriptedPage(relay.url, "notes") as page,
    ):
        await page.send({"jsonrpc": "2.0", "id": TOO_LONG, "method": "ping"})
        await page.until(lambda: page.answer_to(None) is not None)
        answer = page.answer_to(None)
        assert answer is not None and f"{MAX_ID:,}" in answer["error"]["message"]
        assert (await relay.call("notes", "echo", {})).status_code == 200
        relay.recorder.discard_violations()


@pytest.mark.parametrize("id", [LONG, TOO_LONG, ["x"], {"x": 1}, DEEP_ID])
@pytest.mark.parametrize("value", [{"method": "ping"}, {"method": "tools/call", "params": {}}, {}])
def test_the_bridge_refuses_a_long_id_with_null_in_its_place(value: dict[str, Any], id: Any) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": "ID", **value}).replace('"ID"', as_json(id)).encode()
    for raw in (line, b"[" + line + b"]"):
        with pytest.raises(Malformed) as caught:
            parse(raw)
        assert caught.value.id is None and caught.value.code == -32600
    assert parse(json.dumps({"jsonrpc": "2.0", "id": LONGEST, "method": "ping"}).encode()).ids == (LONGEST,)


async def test_an_answer_that_made_the_relay_close_is_not_sent_again(tmp_path: Path) -> None:
    """For any reason; here the frame exceeds the limit."""
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = lambda worker, event, message: worker.answer(event, {"content": [], "x": "x" * 4_000_000})
        worker.link._sender._max_part = worker.link._sender.max_message = 1 << 30
        call = asyncio.create_task(relay.call("notes", "echo", {}))
        await worker.until(lambda: worker.close_code == 1009)
        worker.link.refused()
        await worker.dropped()
        worker.on_call = SyntheticWorker.echo
        await worker.dial()
        error = (await call).json()["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("bad_answer", "unknown")
        answer = await relay.call("notes", "echo", {"x": 1})
        assert answer.json()["result"]["content"][0]["text"] == '{"x": 1}'


# -- unpaired surrogates -----------------------------------------------------------------------------------------------


def rows(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in home.glob("log/calls-*.log") for line in path.read_text().splitlines()]


async def test_half_of_a_surrogate_pair_in_a_frame_costs_its_socket_and_no_line_of_the_call_log(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, grace_s=0.2) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
        SyntheticWorker(relay.url, relay.token, "fine"),
    ):

        def close(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
            number = worker.link._sender.last + 1
            header = frames.encode(t="close", s=number, a=0, c=event.channel, why="\ud800")
            worker.link._sender.outbox.append((header, None))

        worker.on_call = close
        answers = await asyncio.gather(
            relay.call("notes", "echo", {}), *(relay.call("fine", "echo", {"n": n}) for n in range(20))
        )
        assert worker.close_code == 4400
        assert [answer.status_code for answer in answers] == [200] * 21
        assert answers[0].json()["error"]["data"]["reason"] == "browser_gone"
        await until(lambda: len(rows(tmp_path)) == 21)
        assert sum(row["outcome"] == "ok" for row in rows(tmp_path)) == 20


@pytest.mark.parametrize("field", ["inst", "build", "browser", "sid"])
async def test_a_hello_that_is_refused_leaves_no_session_behind(tmp_path: Path, field: str) -> None:
    hello = {"t": "hello", "v": [1, 1], "build": "b", "server": "new", "inst": "w", "rx": 0}
    refused = [
        json.dumps({**hello, field: "\ud800"}),
        json.dumps({**hello, "v": [9, 9]}),
    ]
    async with RunningRelay(tmp_path, instances=("shared",)) as relay:
        for text in (*refused, *(text.replace('"new"', '"shared"') for text in refused)):
            server = json.loads(text)["server"]
            url = f"{relay.url.replace('http', 'ws', 1)}/{server}"
            offered = [Subprotocol(SUBPROTOCOL), Subprotocol(bearer(relay.token))]
            async with connect(url, subprotocols=offered, proxy=None) as socket:
                await socket.send(text)
                await socket.wait_closed()
                assert socket.close_code == 4400
        assert "tabrelay_browsers{" in (figures := (await relay.http.get("/-/metrics")).text)
        assert 'tabrelay_browsers{state="away"} 0' in figures and 'tabrelay_browsers{state="connected"} 0' in figures
        async with SyntheticWorker(relay.url, relay.token, "new"):
            assert (await relay.call("new", "echo", {})).status_code == 200


def test_an_error_of_the_relay_can_always_be_written() -> None:
    for error in (BrowserGone("why: \ud800"), BadAnswer("\udfff")):
        assert orjson.loads(orjson.dumps(jsonrpc.error_message(1, error.code, error.message)))
        assert "\N{REPLACEMENT CHARACTER}" in error.message and str(error) == error.message


CALLER = Caller(Era.MODERN, "2026-07-28", "token:a", {"name": "c", "version": "1"})
ODD = Caller(Era.MODERN, "2026-07-28", "token:\ud800", {"name": "\ud800", "version": "1"})
DEEP = '{"params":{"name":"echo","arguments":' + '{"x":' * 300 + "1" + "}" * 302


@pytest.mark.parametrize("with_arguments", [False, True])
async def test_a_line_that_can_not_be_made_is_counted_and_costs_no_other(tmp_path: Path, with_arguments: bool) -> None:
    path = tmp_path / "calls.log"
    journal = CallLog(path, 1 << 20, 1, with_arguments=with_arguments)
    bad: list[Any] = [(ODD, "{}", PLAIN_RESULT), (ODD, "{}", BrowserGone("x"))]
    bad += [(CALLER, DEEP, PLAIN_RESULT)] if with_arguments else []
    for number, (caller, payload, outcome) in enumerate(bad):
        journal.record("notes", Call("c-1", 1, "tools/call", "{}", CALLER, None, f"before{number}"), 0.1, PLAIN_RESULT)
        journal.record("notes", Call("c-1", 1, "tools/call", payload, caller, None, "bad"), 0.1, outcome)
    journal.record("notes", Call("c-1", 1, "tools/call", "{}", CALLER, None, "last"), 0.1, PLAIN_RESULT)
    journal.flush()
    written = [json.loads(line) for line in path.read_text().splitlines()]
    names = [row["name"] for row in written if row["outcome"] == "ok"]
    assert names == [*(f"before{number}" for number in range(len(bad))), "last"]
    assert [row["calls"] for row in written if row["outcome"] == "left_out"] == [len(bad)]
    assert journal.lost == len(bad)


def test_text_is_made_well_formed_without_harm_to_what_is() -> None:
    assert frames.well_formed("a\ud800b\N{CRAB}") == "a\N{REPLACEMENT CHARACTER}b\N{CRAB}"
    assert frames.is_well_formed("\N{CRAB}") and not frames.is_well_formed("\ud83e")


BRACKETS = "{[" * 400
WIDE: dict[str, Any] = {f"x{number}": {} for number in range(600)}


@pytest.mark.parametrize("client", [{"name": BRACKETS, "version": "1"}, {"name": "c", "version": "1", "x": WIDE}])
async def test_brackets_in_ids_and_client_descriptions_end_no_link(tmp_path: Path, client: Any) -> None:
    """A worker refuses headers that nest deeply. Brackets inside strings and side by side do not count as nesting."""
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        meta = {"io.modelcontextprotocol/clientInfo": client}
        for id in (BRACKETS, 1):
            said = relay.modern("tools/call", {"name": "echo", "arguments": {}, "_meta": meta}, id=id)
            assert (await relay.http.post("/notes", **said)).json()["id"] == id
        begin = {"protocolVersion": "2025-11-25", "clientInfo": client, "capabilities": {"experimental": WIDE}}
        answer = await relay.http.post("/notes", json=jsonrpc.request(BRACKETS, "initialize", begin))
        assert answer.json()["id"] == BRACKETS
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        body = jsonrpc.request(BRACKETS, "tools/call", {"name": "echo", "arguments": {}})
        assert (await relay.http.post("/notes", json=body, headers=session)).json()["id"] == BRACKETS
        assert not any(isinstance(event, Violation) for event in worker.seen)


async def test_trace_context_reaches_a_browser_in_the_message_and_within_its_bounds(tmp_path: Path) -> None:
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        long = {"traceparent": parent, "tracestate": "a=" + "b" * 20_000, "baggage": "c=" + "d" * 20_000}
        for headers in (long, {"traceparent": "00-" + "a" * 20_000, "tracestate": "a=b"}):
            said = relay.modern("tools/call", {"name": "echo", "arguments": {}})
            said["headers"] |= headers
            assert (await relay.http.post("/notes", **said)).status_code == 200
        first, second = ({*call["params"]["_meta"]} & {"traceparent", "tracestate", "baggage"} for call in worker.calls)
        assert (first, second) == ({"traceparent"}, set())
        assert worker.calls[0]["params"]["_meta"]["traceparent"] == parent
