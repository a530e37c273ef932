"""js/express.js: it carries out what was granted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import node

SCRIPT = Path(__file__).parents[1] / "support" / "express.mjs"
CALLER = {"era": "modern", "principal": "token"}
PLAIN = '{"content":[{"type":"text","text":"hello"}]}'
META = '{"meta":1}'


def request(name: str = "info", id: Any = 1, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": {"a": 1}, "_meta": {"m": 1}} | more.pop("params", {})
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params} | more


def frame(seq: int, channel: str = "c1", said: Any = None, id: Any = 1, caller: Any = None, **more: Any) -> str:
    said = request(id=id) if said is None else said
    head = {"t": "msg", "s": seq, "a": 0, "c": channel, "k": "req", "i": id, "o": caller or CALLER} | more
    return json.dumps(head, separators=(",", ":")) + "\n" + (said if isinstance(said, str) else json.dumps(said))


async def play(tmp_path: Path, *steps: Any) -> list[list[Any]]:
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(steps))
    ended = await node(SCRIPT, file)
    assert ended.code == 0, ended.err
    log: list[list[Any]] = json.loads(ended.out)
    return log


def granted(port: int = 1, channel: str = "c1", seq: int = 1) -> list[list[Any]]:
    """A call that Python received and found plain."""
    grant = {"port": port, "number": 7, "channel": channel}
    return [
        ["python", {"taken": seq, "grant": grant}],
        ["frame", frame(seq, "c1")],
        ["python", {"grant": None, "turn": 4}],
    ]


def kinds(log: list[list[Any]]) -> list[str]:
    return [each[0] for each in log]


async def test_a_call_like_one_before_goes_to_its_tab_and_its_answer_to_the_relay(tmp_path: Path) -> None:
    second = frame(2, "c2", request(id="a b", params={"arguments": {"b": "ä"}}), id="a b")
    result = {"t": "result", "call": "x1", "json": PLAIN}
    log = await play(tmp_path, *granted(), ["frame", second], ["page", 1, result])
    header, _, payload = second.partition("\n")
    assert log[1] == ["post", 1, f'{{"t":"call","call":"x1","words":1,"request":{payload}}}']
    assert log[2] == ["sent", 7, 2, 0, "c2", "a b", "x1", len(header), payload]
    head = '{"t":"msg","s":4,"a":2,"c":"c2","k":"res","i":"a b"}'
    inner = f'{{"resultType":"complete",{PLAIN[1:-1]},"_meta":{META}}}'
    assert log[3] == ["turn"]
    assert log[4] == ["write", f'{head}\n{{"jsonrpc":"2.0","id":"a b","result":{inner}}}']
    assert log[5] == ["answered", "x1", PLAIN] and len(log) == 6


async def test_a_tool_of_the_worker_is_run_and_its_answer_written(tmp_path: Path) -> None:
    log = await play(tmp_path, *granted(port=0), ["python", {"run": PLAIN}], ["frame", frame(2, "c2")])
    assert kinds(log) == ["receive", "turn", "run", "write", "ran"]
    assert json.loads(log[3][1].partition("\n")[0]) == {"t": "msg", "s": 4, "a": 2, "c": "c2", "k": "res", "i": 1}
    assert log[4] == ["ran", True]


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ({"run": None}, ["turn", "run", "receive"]),
        ({"run": ""}, ["turn", "run"]),
        ({"run": PLAIN, "turn": 0}, ["turn", "receive"]),
        ({"run": PLAIN, "writes": "a notice"}, ["turn", "run", "write", "ran"]),
        ({"run": PLAIN, "revokes": True}, ["turn", "run", "ran"]),
    ],
)
async def test_what_the_worker_did_with_it_decides(tmp_path: Path, python: Any, expected: list[str]) -> None:
    log = await play(tmp_path, *granted(port=0), ["python", python], ["frame", frame(2, "c2")])
    assert kinds(log)[1:] == expected
    assert log[-1] == ["ran", False] or log[-1][0] != "ran"


OTHERS: dict[str, Any] = {
    "another caller": frame(2, caller={"principal": "other"}),
    "another tool": frame(2, said=request("other")),
    "another meta": frame(2, said=request(params={"_meta": {"progressToken": 1}})),
    "a tab that is named": frame(2, said=request(params={"arguments": {"_tab": "b"}})),
    "a number that was not due": frame(3),
    "one that came before": frame(1),
    "asked again": frame(2, d=1),
    "another method": frame(2, said=request(method="tools/list")),
    "another id": frame(2, said=request(id=2)),
    "an id that is none": frame(2, said=request(id=True)),
    "more members": frame(2, said=request(params={"requestState": "s"})),
    "arguments that are none": frame(2, said=request(params={"arguments": []})),
    "no JSON": frame(2, said='{"jsonrpc"'),
    "no number": frame(2, said=json.dumps(request()).replace("1}", "NaN}")),
    "no object": frame(2, said="null"),
    "very deep": frame(2, said=request(params={"arguments": {"a": json.loads("[" * 257 + "]" * 257)}})),
    "very long": frame(2, said=request(params={"arguments": {"a": "x" * 70_000}})),
    "an id with a quote": frame(2, id='"', said=request(id='"')),
    "no payload": frame(2).partition("\n")[0],
    "an acknowledgement": '{"t":"ack","a":1}',
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_whatever_is_not_like_it_is_received_by_python(tmp_path: Path, other: str) -> None:
    log = await play(tmp_path, *granted(), ["frame", other])
    assert log[1:] == [["receive", other]]


async def test_python_says_which_frame_comes_next(tmp_path: Path) -> None:
    note = '{"t":"close","s":2,"a":0,"c":"c9","why":"gone"}'
    steps = [["python", {"taken": 2}], ["frame", note], ["frame", frame(2, "c2")], ["frame", frame(3, "c3")]]
    assert kinds(await play(tmp_path, *granted(), *steps))[1:] == ["receive", "receive", "post", "sent"]
    unknown = [["python", {"taken": -1}], ["frame", note], ["frame", frame(3, "c3")]]
    assert kinds(await play(tmp_path, *granted(), *unknown))[1:] == ["receive", "receive"]


@pytest.mark.parametrize(
    "steps", [[["revoke"]], [["open"]], [["socket", {"readyState": 2}]], [["python", {"deaf": True}]]], ids=str
)
async def test_where_nothing_is_granted_any_more_python_has_its_turn(tmp_path: Path, steps: list[Any]) -> None:
    log = await play(tmp_path, *granted(), *steps, ["frame", frame(2, "c2")])
    assert kinds(log)[1:] == ["receive"]


async def test_a_grant_is_for_the_call_that_it_was_given_for(tmp_path: Path) -> None:
    log = await play(tmp_path, *granted(channel="another"), ["frame", frame(2, "c2")])
    assert kinds(log) == ["receive", "receive"]


async def test_what_python_granted_at_another_time_is_for_no_frame(tmp_path: Path) -> None:
    grant = {"port": 1, "number": 7, "channel": "c1"}
    steps = [
        ["python", {"taken": 1, "grant": grant}],
        ["frame", '{"t":"ack","a":0}'],
        ["python", {"grant": None}],
        ["frame", frame(2)],
        ["frame", frame(3)],
    ]
    assert kinds(await play(tmp_path, *steps)) == ["receive"] * 3


RESULTS: dict[str, list[Any]] = {
    "of another page": [["page", 2, {"t": "result", "call": "x1", "json": PLAIN}]],
    "that is an error": [["page", 1, {"t": "result", "call": "x1", "json": '{"content":[],"isError":true}'}]],
    "that is long": [["page", 1, {"t": "result", "call": "x1", "json": PLAIN.replace("hello", "x" * 49_152)}]],
    "that is none": [["page", 1, {"t": "result", "call": "x1", "json": None}]],
    "of no call": [["page", 1, {"t": "result", "call": "x2", "json": PLAIN}]],
    "after a change": [["revoke"], ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]],
    "without a socket": [["socket", {"readyState": 3}], ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]],
    "past others": [["socket", {"bufferedAmount": 1 << 20}], ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]],
    "on another socket": [["open"], ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]],
}


@pytest.mark.parametrize("steps", RESULTS.values(), ids=RESULTS)
async def test_a_result_that_is_not_plain_or_has_no_way_is_received_by_python(tmp_path: Path, steps: list[Any]) -> None:
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2")], *steps)
    assert kinds(log)[3:] in (["result"], ["message"])


async def test_when_python_wrote_the_number_is_asked_for(tmp_path: Path) -> None:
    result = ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]
    steps = [["frame", frame(2, "c2")], ["python", {"taken": 3, "turn": 9}], ["frame", '{"t":"ack","a":0}'], result]
    log = await play(tmp_path, *granted(), *steps)
    assert kinds(log)[3:] == ["receive", "turn", "write", "answered"]
    assert log[5][1].startswith('{"t":"msg","s":9,"a":3,')
    steps[1] = ["python", {"turn": 0}]
    assert kinds(await play(tmp_path, *granted(), *steps))[3:] == ["receive", "turn", "result"]


async def test_a_result_is_written_once(tmp_path: Path) -> None:
    result = ["page", 1, {"t": "result", "call": "x1", "json": PLAIN}]
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2")], result, result)
    assert kinds(log)[3:] == ["turn", "write", "answered", "result"]
