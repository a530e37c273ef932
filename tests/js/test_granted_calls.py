"""js/worker/granted_calls.js carries out exactly the granted calls."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tabserver.tabs.tab import FRESH_MS, WINDOW
from tabserver.worker.js_calls import MAX_RESULT_CHARACTERS, MAX_UNRECORDED, MAX_UNRECORDED_CHARACTERS
from tests.support.nodejs import node
from tests.support.paths import JS, SUPPORT

SCRIPT = SUPPORT / "granted_calls.mjs"
CALLER = {"era": "modern", "principal": "token"}
PLAIN = '{"content":[{"type":"text","text":"hello"}]}'
META = '{"meta":1}'


def request(name: str = "info", id: Any = 1, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": {"a": 1}, "_meta": {"m": 1}} | more.pop("params", {})
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params} | more


def frame(seq: int, channel: str = "c1", payload: Any = None, id: Any = 1, caller: Any = None, **more: Any) -> str:
    payload = request(id=id) if payload is None else payload
    head = {"t": "msg", "s": seq, "a": 0, "c": channel, "k": "req", "i": id, "o": caller or CALLER} | more
    return (
        json.dumps(head, separators=(",", ":")) + "\n" + (payload if isinstance(payload, str) else json.dumps(payload))
    )


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
        ["python", {"grant": None, "next_seq": 4}],
    ]


def kinds(log: list[list[Any]]) -> list[str]:
    return [each[0] for each in log]


def answered(call: str = "x1", port: int = 1, json: Any = PLAIN) -> list[Any]:
    return ["page", port, {"t": "result", "call": call, "json": json}]


async def test_a_call_like_one_before_goes_to_its_tab_and_its_answer_to_the_relay(tmp_path: Path) -> None:
    second = frame(2, "c2", request(id="a b", params={"arguments": {"b": "ä"}}), id="a b")
    log = await play(tmp_path, *granted(), ["frame", second], answered(), ["time"])
    header, _, payload = second.partition("\n")
    assert log[1] == ["post", 1, f'{{"t":"call","call":"x1","words":1,"request":{payload}}}']
    head = '{"t":"msg","s":4,"a":2,"c":"c2","k":"res","i":"a b"}'
    inner = f'{{"resultType":"complete",{PLAIN[1:-1]},"_meta":{META}}}'
    assert log[2] == ["next_seq"]
    assert log[3] == ["write", f'{head}\n{{"jsonrpc":"2.0","id":"a b","result":{inner}}}']
    size = len(header) + len(payload)
    assert log[4:] == [["record", f"1 {size} 0 2", "served", "7", "c2", '"a b"', PLAIN]]


async def test_a_tool_of_the_worker_is_run_and_its_answer_written(tmp_path: Path) -> None:
    log = await play(tmp_path, *granted(port=0), ["python", {"run": PLAIN}], ["frame", frame(2, "c2")], ["time"])
    assert kinds(log) == ["receive", "next_seq", "run", "write", "record"]
    assert log[2] == ["run", 7, '{"a": 1}']
    assert json.loads(log[3][1].partition("\n")[0]) == {"t": "msg", "s": 4, "a": 2, "c": "c2", "k": "res", "i": 1}
    assert log[4][2:] == ["served", "7", "c2", "1", PLAIN]


async def test_python_gets_the_records_of_many_calls_at_once(tmp_path: Path) -> None:
    steps = [["frame", frame(n, f"c{n}")] for n in range(2, 6)]
    log = await play(tmp_path, *granted(), *steps, answered("x2"), ["time"], answered("x1"), answered("x3"), ["time"])
    sizes = sum(len(frame(n, f"c{n}")) - 1 for n in range(2, 6))
    assert kinds(log)[1:] == ["post"] * 4 + ["next_seq", "write", "record", "write", "write", "record"]
    records = log[7][1:]
    assert records[:6] == [f"4 {sizes} 0 5", "served", "7", "c3", "1", PLAIN]
    running = [records[at + 1 : at + 6] for at, line in enumerate(records) if line == "sent"]
    assert running == [["7", f"x{n - 1}", "1000", f"c{n}", "1"] for n in (2, 4, 5)]
    assert log[10][1:] == ["0 0 0 5", "answered", "x1", PLAIN, "answered", "x3", PLAIN]
    # JavaScript counts the numbers on, until Python returns another one.
    assert [json.loads(log[at][1].partition("\n")[0])["s"] for at in (6, 8, 9)] == [4, 4, 5]


async def test_one_timer_runs_at_a_time_and_one_that_fires_late_does_nothing(tmp_path: Path) -> None:
    steps = [["frame", frame(2, "c2")], ["frame", frame(3, "c3")], ["unrecorded"], ["time"], ["time"]]
    assert kinds(await play(tmp_path, *granted(), *steps))[1:] == ["post", "post", "unrecorded"]


@pytest.mark.parametrize("size", [10, 5000])
async def test_records_for_python_are_never_far_behind(tmp_path: Path, size: int) -> None:
    payload = request(params={"arguments": {"a": "x" * size}})
    log = await play(tmp_path, *granted(), *(["frame", frame(n, f"c{n}", payload)] for n in range(2, 102)))
    recorded = [int(each[1].split()[0]) for each in log if each[0] == "record"]
    assert recorded == ([64] if size == 10 else [51])


def test_python_leaves_room_for_all_answers_that_it_may_have_no_record_of() -> None:
    """Python and JavaScript each define these limits."""
    source = (JS / "worker" / "granted_calls.js").read_text()
    found = re.findall(r"^const (MAX_RESULT_CHARACTERS|MAX_UNRECORDED\w*) = ([0-9 *]+);", source, re.MULTILINE)
    bounds = {name: math.prod(map(int, product.split("*"))) for name, product in found}
    around = 1024  # header and envelope; channel and id are at most 256 characters
    assert bounds["MAX_RESULT_CHARACTERS"] == MAX_RESULT_CHARACTERS and bounds["MAX_UNRECORDED"] <= MAX_UNRECORDED
    assert (
        bounds["MAX_UNRECORDED_CHARACTERS"] + MAX_RESULT_CHARACTERS + MAX_UNRECORDED * around
        <= MAX_UNRECORDED_CHARACTERS
    )


AFTER_SYNC: dict[str, tuple[list[Any], str]] = {
    "a frame": (["frame", '{"t":"ack","a":0}'], "receive"),
    "a page": (["page", 2, {"t": "watch"}], "message"),
    "a result": (answered("7"), "result"),
    "the end": (["close"], "closed"),
}


@pytest.mark.parametrize(("step", "received"), AFTER_SYNC.values(), ids=AFTER_SYNC)
async def test_python_gets_the_records_of_calls_before_anything_else(
    tmp_path: Path, step: list[Any], received: str
) -> None:
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2")], step, ["time"])
    assert kinds(log)[1:] == ["post", "record", received]


async def test_records_that_python_asked_for_are_not_sent_again_and_the_next_number_is_pythons(tmp_path: Path) -> None:
    steps = [
        ["frame", frame(2, "c2")],
        answered(),
        ["unrecorded"],
        ["python", {"next_seq": 9}],
        ["frame", frame(3, "c3")],
    ]
    log = await play(tmp_path, *granted(), *steps, answered("x2"), ["unrecorded"], ["unrecorded"])
    assert kinds(log)[1:] == [
        "post",
        "next_seq",
        "write",
        "unrecorded",
        "post",
        "next_seq",
        "write",
        "unrecorded",
        "unrecorded",
    ]
    assert (
        log[4][2:4] == ["served", "7"]
        and log[7][1].startswith('{"t":"msg","s":9,"a":3,')
        and log[9] == ["unrecorded", ""]
    )


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ({"run": None}, ["next_seq", "run", "receive"]),
        ({"run": ""}, ["next_seq", "run", "finish"]),
        ({"run": PLAIN, "next_seq": 0}, ["next_seq", "receive"]),
        ({"run": PLAIN, "syncs": True}, ["next_seq", "run", "unrecorded", "finish"]),
        ({"run": PLAIN, "revokes": True}, ["next_seq", "run", "finish"]),
    ],
)
async def test_the_tools_outcome_decides_how_the_call_is_answered(
    tmp_path: Path, python: Any, expected: list[str]
) -> None:
    second = frame(2, "c2")
    log = await play(tmp_path, *granted(port=0), ["python", python], ["frame", second], ["time"])
    assert kinds(log)[1:] == expected
    if expected[-1] == "finish":
        header, _, payload = second.partition("\n")
        assert log[-1] == ["finish", 0, "c2", "1", len(header) + len(payload), payload, python["run"]]


async def test_a_tool_is_not_run_for_a_call_that_acknowledges_more_than_was_sent(tmp_path: Path) -> None:
    steps = [["python", {"run": PLAIN}], ["frame", frame(2, "c2", a=4)]]
    assert kinds(await play(tmp_path, *granted(port=0), *steps))[1:] == ["next_seq", "receive"]
    steps[1] = ["frame", frame(2, "c2", a=3)]
    assert kinds(await play(tmp_path, *granted(port=0), *steps))[1:] == ["next_seq", "run", "write"]


OTHERS: dict[str, Any] = {
    "another caller": frame(2, caller={"principal": "other"}),
    "another tool": frame(2, payload=request("other")),
    "another meta": frame(2, payload=request(params={"_meta": {"progressToken": 1}})),
    "another meta of that length": frame(2, payload=request(params={"_meta": {"m": 2}})),
    "a tab that is named": frame(2, payload=request(params={"arguments": {"_tab": "b"}})),
    "a number that was not due": frame(3),
    "one that frames_and_number before": frame(1),
    "asked again": frame(2, d=1),
    "another method": frame(2, payload=request(method="tools/list")),
    "another id": frame(2, payload=request(id=2)),
    "an id that is none": frame(2, payload=request(id=True)),
    "more members": frame(2, payload=request(params={"requestState": "s"})),
    "another order": frame(2, payload=dict(reversed(request().items()))),
    "other spaces": frame(2, payload=json.dumps(request(), separators=(",", ":"))),
    "arguments twice": frame(2, payload=json.dumps(request()).replace('"_meta"', '"arguments": {"b": 1}, "_meta"')),
    "more than one line": frame(2, payload=json.dumps(request()).replace('"a": 1', '"a":\n1')),
    "arguments that are none": frame(2, payload=request(params={"arguments": []})),
    "no JSON": frame(2, payload='{"jsonrpc"'),
    "no number": frame(2, payload=json.dumps(request()).replace("1}", "NaN}")),
    "no object": frame(2, payload="null"),
    "very deep": frame(2, payload=request(params={"arguments": {"a": json.loads("[" * 257 + "]" * 257)}})),
    "very long": frame(2, payload=request(params={"arguments": {"a": "x" * 70_000}})),
    "a long id": frame(2, id="x" * 257, payload=request(id="x" * 257)),
    "a long channel": frame(2, "x" * 257),
    "an id with a quote": frame(2, id='"', payload=request(id='"')),
    "no payload": frame(2).partition("\n")[0],
    "an acknowledgement": '{"t":"ack","a":1}',
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_whatever_is_not_like_it_is_received_by_python(tmp_path: Path, other: str) -> None:
    log = await play(tmp_path, *granted(), ["frame", other])
    assert log[1:] == [["receive", other]]


async def test_python_returns_the_number_of_the_last_frame(tmp_path: Path) -> None:
    note = '{"t":"close","s":2,"a":0,"c":"c9","why":"gone"}'
    steps = [["python", {"taken": 2}], ["frame", note], ["frame", frame(2, "c2")], ["frame", frame(3, "c3")]]
    assert kinds(await play(tmp_path, *granted(), *steps))[1:] == ["receive", "receive", "post"]
    unknown = [["python", {"taken": -1}], ["frame", note], ["frame", frame(3, "c3")]]
    assert kinds(await play(tmp_path, *granted(), *unknown))[1:] == ["receive", "receive"]


@pytest.mark.parametrize(
    "steps", [[["revoke"]], [["open"]], [["socket", {"readyState": 2}]], [["python", {"fails_to_post": True}]]], ids=str
)
async def test_without_a_grant_python_receives_the_call(tmp_path: Path, steps: list[Any]) -> None:
    log = await play(tmp_path, *granted(), *steps, ["frame", frame(2, "c2")])
    assert kinds(log)[1:] == ["receive"]


async def test_a_grant_is_for_the_call_that_it_was_given_for(tmp_path: Path) -> None:
    log = await play(tmp_path, *granted(channel="another"), ["frame", frame(2, "c2")])
    assert kinds(log) == ["receive", "receive"]


async def test_a_grant_that_was_given_for_another_frame_covers_none(tmp_path: Path) -> None:
    grant = {"port": 1, "number": 7, "channel": "c1"}
    steps = [
        ["python", {"taken": 1, "grant": grant}],
        ["frame", '{"t":"ack","a":0}'],
        ["python", {"grant": None}],
        ["frame", frame(2)],
        ["frame", frame(3)],
    ]
    assert kinds(await play(tmp_path, *steps)) == ["receive"] * 3


async def test_a_call_is_recognised_in_any_member_order_of_its_client(tmp_path: Path) -> None:
    payload = {"method": "tools/call", "params": {"_meta": {}, "arguments": {}, "name": "x"}, "jsonrpc": "2.0", "id": 1}
    for text in (
        json.dumps(payload),
        json.dumps(payload, separators=(",", ":")),
        json.dumps(payload, indent=1).replace("\n", ""),
    ):
        first = [
            ["python", {"taken": 1, "grant": {"port": 1, "number": 7, "channel": "c1"}}],
            ["frame", frame(1, payload=text)],
        ]
        second = text.replace('{}, "name"', '{"a": ["]}", {"id": 2}]}, "name"').replace(
            '{},"name"', '{"b":"\\""},"name"'
        )
        steps = [["python", {"grant": None}], ["frame", frame(2, "c2", second)]]
        assert kinds(await play(tmp_path, *first, *steps)) == ["receive", "post"]


AMBIGUOUS: dict[str, str] = {
    "an id twice": json.dumps(request()).replace('"id": 1', '"id": 1, "id": 1'),
    "a key with escapes": json.dumps(request()).replace('"arguments"', '"argument\\u0073"'),
    "an id with escapes": json.dumps(request()).replace('"id"', '"i\\u0064"'),
    "more members": json.dumps(request(params={"requestState": "s"})),
    "a key like a path": json.dumps(request() | {"params/arguments": {}}),
}


@pytest.mark.parametrize("payload", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_python_receives_calls_with_ambiguous_json_each_time(tmp_path: Path, payload: str) -> None:
    first = [
        ["python", {"taken": 1, "grant": {"port": 1, "number": 7, "channel": "c1"}}],
        ["frame", frame(1, payload=payload)],
    ]
    steps = [["python", {"grant": None}], ["frame", frame(2, "c2", payload)]]
    assert kinds(await play(tmp_path, *first, *steps)) == ["receive", "receive"]


RESULTS: dict[str, list[Any]] = {
    "of another page": [answered(port=2)],
    "that is an error": [answered(json='{"content":[],"isError":true}')],
    "that is long": [answered(json=PLAIN.replace("hello", "x" * 49_152))],
    "that is none": [answered(json=None)],
    "of no call": [answered("x2")],
    "after a change": [["unrecorded"], ["revoke"], answered()],
    "without a socket": [["socket", {"readyState": 3}], answered()],
    "past others": [["socket", {"bufferedAmount": 1 << 20}], answered()],
    "on another socket": [["unrecorded"], ["open"], answered()],
}


@pytest.mark.parametrize("steps", RESULTS.values(), ids=RESULTS)
async def test_python_receives_a_result_that_is_not_plain_or_can_not_be_written(
    tmp_path: Path, steps: list[Any]
) -> None:
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2")], *steps)
    assert kinds(log)[2:] in (["record", "result"], ["record", "message"], ["unrecorded", "result"])


async def test_after_python_wrote_the_next_number_is_asked_for(tmp_path: Path) -> None:
    steps = [
        ["frame", frame(2, "c2")],
        ["python", {"taken": 3, "next_seq": 9}],
        ["frame", '{"t":"ack","a":0}'],
        answered(),
    ]
    log = await play(tmp_path, *granted(), *steps)
    assert kinds(log)[2:] == ["record", "receive", "next_seq", "write"]
    assert log[5][1].startswith('{"t":"msg","s":9,"a":3,')
    steps[1] = ["python", {"next_seq": 0}]
    assert kinds(await play(tmp_path, *granted(), *steps))[2:] == ["record", "receive", "next_seq", "result"]


async def test_a_result_is_written_once(tmp_path: Path) -> None:
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2")], answered(), answered())
    assert kinds(log)[2:] == ["next_seq", "write", "record", "result"]


def rivals() -> list[list[Any]]:
    """A call that Python received, found plain and sent, and its answer. Another tab could have taken it."""
    first, *rest = granted()
    first[1]["grant"]["hasRivals"] = True
    return [first, *rest, ["posts", 1, '{"t":"call","call":"1",'], answered("1")]


def frames_and_number(*seqs: int) -> list[list[Any]]:
    """Frames, and the number that Python returns if it receives them."""
    return [step for seq in seqs for step in (["python", {"taken": seq}], ["frame", frame(seq, f"c{seq}")])]


def received(log: list[list[Any]]) -> list[str]:
    """The channels of calls that Python received."""
    return [each[1].split('"c":"')[1].partition('"')[0] for each in log if each[0] == "receive"]


async def test_a_tab_gets_one_call_more_than_it_has_read_while_another_could_take_it(tmp_path: Path) -> None:
    """It has answered one call, so it may have two unread. Python pings the tab before it gets a third."""
    log = await play(tmp_path, *rivals(), *frames_and_number(2, 3, 4), answered("x2"), *frames_and_number(5, 6, 7, 8))
    assert received(log) == ["c1", "c4", "c8"]


async def test_a_tab_never_has_more_unread_calls_than_the_window_while_another_could_take_them(tmp_path: Path) -> None:
    rounds = [[*frames_and_number(n, n + 1, n + 2), answered(f"x{n // 3 + 1}")] for n in range(2, 3 * WINDOW * 2, 3)]
    log = await play(tmp_path, *rivals(), *(step for each in rounds for step in each))
    unread = most = 0
    for kind, *_ in log[log.index(["result", f"1\n{PLAIN}"]) :]:
        unread += (kind == "post") - (kind == "write")
        most = max(most, unread)
    assert most == WINDOW


def test_both_sides_have_the_same_window() -> None:
    source = (JS / "worker" / "granted_calls.js").read_text()
    found = dict(re.findall(r"^const (FRESH_MS|WINDOW) = (\d+);", source, re.MULTILINE))
    assert found == {"FRESH_MS": f"{FRESH_MS:.0f}", "WINDOW": str(WINDOW)}


async def test_while_a_tab_has_a_ping_to_answer_python_gets_calls_that_another_tab_could_take(tmp_path: Path) -> None:
    ping = ["posts", 1, '{"t":"ping"}']
    log = await play(
        tmp_path, *rivals(), ping, *frames_and_number(2), ["page", 1, {"t": "pong"}], *frames_and_number(3)
    )
    assert received(log) == ["c1", "c2"]


async def test_a_pong_shows_that_calls_before_its_ping_were_read(tmp_path: Path) -> None:
    steps = [
        *frames_and_number(2, 3),
        ["posts", 1, '{"t":"ping"}'],
        ["page", 1, {"t": "pong"}],
        *frames_and_number(4, 5, 6, 7),
    ]
    assert received(await play(tmp_path, *rivals(), *steps)) == ["c1", "c7"]


async def test_progress_shows_that_a_call_was_read(tmp_path: Path) -> None:
    steps = [*frames_and_number(2, 3), ["page", 1, {"t": "progress", "call": "x2"}], *frames_and_number(4)]
    assert received(await play(tmp_path, *rivals(), *steps)) == ["c1"]


async def test_an_old_answer_does_not_show_that_a_tab_reads(tmp_path: Path) -> None:
    log = await play(tmp_path, *rivals(), ["clock", 101], *frames_and_number(2))
    assert received(log) == ["c1", "c2"] and kinds(log).count("post") == 1


async def test_after_a_pause_a_tab_gets_one_call(tmp_path: Path) -> None:
    steps = [
        *frames_and_number(2, 3),
        answered("x1"),
        answered("x2"),
        ["clock", 101],
        ["page", 1, {"t": "pong"}],
        *frames_and_number(4, 5),
    ]
    assert received(await play(tmp_path, *rivals(), *steps)) == ["c1", "c5"]


async def test_records_state_when_a_tab_with_rivals_answered_and_how_many_calls_it_may_have(tmp_path: Path) -> None:
    log = await play(
        tmp_path, *rivals(), *frames_and_number(2, 3), ["clock", 20], answered("x1"), ["clock", 5], ["unrecorded"]
    )
    assert log[-1][-4:] == ["received", "7", "1020", "3"]
    log = await play(tmp_path, *granted(), *frames_and_number(2), answered("x1"), ["unrecorded"])
    assert "received" not in log[-1]


async def test_a_call_whose_times_are_asked_for_goes_to_python(tmp_path: Path) -> None:
    """F6: its header ends with `m`, so it is not like the calls that a grant covers."""
    log = await play(tmp_path, *granted(), ["frame", frame(2, "c2", m=1)])
    assert kinds(log) == ["receive", "receive"]
