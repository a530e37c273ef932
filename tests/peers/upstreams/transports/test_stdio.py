"""Faulty child processes: each fault has one outcome, other servers are not affected, and no process remains."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.config.specs import StdioSpec
from tests.support.child_specs import child, is_alive, until
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, pause


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    specs = [child("first", env=(("SECRET", "hunter22"),)), child("second")]
    async with RunningRelay(tmp_path, specs=specs) as relay:
        yield relay


async def said(relay: RunningRelay, server: str, tool: str, **arguments: Any) -> str:
    answer = (await relay.call(server, tool, arguments)).json()
    assert "result" in answer, answer
    return str(answer["result"]["content"][0]["text"])


async def error(relay: RunningRelay, server: str, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = (await relay.call(server, tool, arguments)).json()
    assert "error" in answer, answer
    found: dict[str, Any] = answer["error"]
    return found


async def pid(relay: RunningRelay, server: str = "first") -> int:
    return int(await said(relay, server, "pid"))


async def row(relay: RunningRelay, server: str) -> dict[str, Any]:
    rows = (await relay.http.get("/-/status")).json()["servers"]
    return next(row for row in rows if row["name"] == server)


async def busy(relay: RunningRelay, server: str) -> None:
    """Wait until it has a call."""
    async with asyncio.timeout(BOUND_S):
        while (await row(relay, server))["in_flight"] == 0:  # noqa: ASYNC110 - the relay sends no event for it
            await asyncio.sleep(0.02)


async def test_a_child_is_served_at_its_name(relay: RunningRelay) -> None:
    assert await said(relay, "first", "echo", x=1) == '{"x": 1}'
    shown = await relay.has_read("first")
    expected = {"kind": "stdio", "connection": "connected", "state": "online", "era": "legacy", "error": None}
    assert expected.items() <= shown.items()
    assert "echo" in [tool["name"] for tool in shown["tools"]]


async def test_kill_9_fails_the_call_in_flight_and_the_next_one_works(relay: RunningRelay) -> None:
    before, other = await pid(relay), await pid(relay, "second")
    await relay.has_read("first")
    slow = asyncio.create_task(error(relay, "first", "slow"))
    beside = asyncio.create_task(said(relay, "second", "slow"))
    await busy(relay, "first")
    await busy(relay, "second")
    os.kill(before, signal.SIGKILL)
    found = await slow
    assert (found["code"], found["data"]["reason"], found["data"]["delivered"]) == (-31017, "upstream_gone", "unknown")
    assert "SIGKILL" in found["message"]
    # Lists are available all the time.
    tools = (await relay.http.post("/first", **relay.modern("tools/list"))).json()["result"]["tools"]
    assert "echo" in [tool["name"] for tool in tools]
    after = await pid(relay)
    assert after != before
    assert not is_alive(before)
    # The other server is not affected.
    assert await pid(relay, "second") == other
    await said(relay, "second", "release")
    assert await beside == "released"


async def test_calls_to_a_child_that_just_died_are_made_once_on_the_next(relay: RunningRelay, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    for _ in range(3):
        dead = await pid(relay)
        os.kill(dead, signal.SIGKILL)
        await until(lambda: not is_alive(dead))  # noqa: B023 - it does not outlive the round
        # Several: one finds the broken pipe, and the others find its consequence.
        await asyncio.gather(*(said(relay, "first", "count", file=str(log)) for _ in range(3)))
    assert log.read_text() == "x" * 9


async def test_calls_to_a_child_that_reads_no_more_are_made_once_on_the_next(
    relay: RunningRelay, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    await relay.has_read("first")
    before = await pid(relay)
    assert await said(relay, "first", "hang_up") == "bye"
    await asyncio.gather(*(said(relay, "first", "count", file=str(log)) for _ in range(3)))
    assert log.read_text() == "xxx"
    assert await pid(relay) != before


async def test_a_child_that_ends_in_a_call_is_not_asked_again(relay: RunningRelay) -> None:
    before = await pid(relay)
    found = await error(relay, "first", "die", code=7)
    assert (found["data"]["reason"], found["data"]["delivered"]) == ("upstream_gone", "unknown")
    assert "code 7" in found["message"] and "I have had enough" in found["message"]
    assert "hunter22" not in found["message"] and "[redacted]" in found["message"]
    assert await pid(relay) != before


async def test_a_child_that_hangs_times_out_and_is_used_again_when_it_goes_on(tmp_path: Path) -> None:
    specs = [child("first", timeout_s=2.0), child("second")]
    async with RunningRelay(tmp_path, specs=specs) as relay:
        hung = await pid(relay)
        os.kill(hung, signal.SIGSTOP)
        found = await error(relay, "first", "echo")
        assert (found["code"], found["message"]) == (-31012, "Request timeout after 2000ms")
        assert found["data"]["delivered"] == "unknown"
        assert await said(relay, "second", "echo") == "{}"
        os.kill(hung, signal.SIGCONT)
        assert await pid(relay) == hung
        os.kill(hung, signal.SIGSTOP)
    # A suspended process can't handle SIGTERM.
    assert not is_alive(hung)


async def test_what_is_no_message_is_passed_over(relay: RunningRelay) -> None:
    before = await pid(relay)
    assert await said(relay, "first", "garbage") == "clean"
    found = await error(relay, "first", "unreadable")
    assert (found["data"]["reason"], found["data"]["delivered"]) == ("bad_answer", "unknown")
    assert await pid(relay) == before


async def test_a_child_that_never_reads_can_delay_neither_timeout_nor_cancel_nor_stop(tmp_path: Path) -> None:
    specs = [child("first", timeout_s=2.0), child("second")]
    async with RunningRelay(tmp_path, specs=specs) as relay:
        deaf = await pid(relay)
        assert await said(relay, "first", "deaf") == "what?"
        flood = [error(relay, "first", "echo", text="x" * 300_000) for _ in range(8)]
        async with asyncio.timeout(15):
            assert {found["code"] for found in await asyncio.gather(*flood)} == {-31012}
        assert await said(relay, "second", "echo") == "{}"
    assert not is_alive(deaf)


async def test_a_line_of_50_megabytes_fails_its_call_and_nothing_else(relay: RunningRelay) -> None:
    before = await pid(relay)
    large, small = await asyncio.gather(error(relay, "first", "large", size=50_000_000), said(relay, "first", "echo"))
    assert (large["code"], large["data"]["reason"]) == (-31014, "result_too_large")
    assert "50,0" in large["message"] and "bytes" in large["message"]
    assert small == "{}"
    assert len(await said(relay, "first", "large", size=3_000_000)) == 3_000_000
    assert await pid(relay) == before


async def test_nothing_that_a_child_started_is_left_when_the_relay_stops(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("first")]) as relay:
        parent, grandchild = await pid(relay), int(await said(relay, "first", "family"))
        assert is_alive(parent) and is_alive(grandchild)
    assert not is_alive(parent) and not is_alive(grandchild)


async def test_nothing_that_a_child_started_is_left_when_it_dies(relay: RunningRelay) -> None:
    parent, grandchild = await pid(relay), int(await said(relay, "first", "family"))
    await error(relay, "first", "die")
    await until(lambda: not is_alive(parent) and not is_alive(grandchild))


async def test_a_child_gets_what_was_configured_and_not_the_relays_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABRELAY_PRIVATE", "secret of the relay")
    spec = child("first", env=(("OWN", "value"),), cwd=str(tmp_path))
    async with RunningRelay(tmp_path, specs=[spec]) as relay:
        env = await said(relay, "first", "env")
        assert '"OWN": "value"' in env and '"PATH"' in env
        assert "secret of the relay" not in env
        assert os.readlink(f"/proc/{await pid(relay)}/cwd") == str(tmp_path)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (StdioSpec("bad", "no-such-program"), 'no program "no-such-program"'),
        (StdioSpec("bad", "/dev/null"), "could not be started"),
        (StdioSpec("bad", "sh", ("-c", "echo out of luck >&2; exit 9")), "code 9; its last output: out of luck"),
        (StdioSpec("bad", "sh", ("-c", "kill -6 $$")), "SIGABRT"),
        (StdioSpec("bad", "true"), "code 0"),
    ],
)
async def test_a_child_that_does_not_start_gives_the_reason_and_disturbs_no_other_server(
    tmp_path: Path, spec: StdioSpec, words: str
) -> None:
    async with RunningRelay(tmp_path, specs=[spec, child("second")], away_wait_s=0.2) as relay:
        found = await error(relay, "bad", "echo")
        assert (found["code"], found["data"]["delivered"]) == (-31010, "no")
        assert words in found["message"]
        assert await said(relay, "second", "echo") == "{}"
        shown = await row(relay, "bad")
        assert shown["state"] == "offline" and words in shown["error"] and shown["attempts"] >= 1


async def test_a_list_is_not_answered_before_a_server_that_is_just_starting(tmp_path: Path) -> None:
    script = f"sleep 0.6; exec {child('x').command} {' '.join(child('x').args)}"
    async with RunningRelay(tmp_path, specs=[StdioSpec("late", "sh", ("-c", script))]) as relay:
        tools = (await relay.http.post("/late", **relay.modern("tools/list"))).json()["result"]["tools"]
        assert "echo" in [tool["name"] for tool in tools]


async def test_the_catalogue_of_another_server_of_that_name_is_not_shown(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("first")]) as relay:
        await relay.has_read("first")
    # The same program again, which does not start this time: its catalogue is still cached.
    broken = child("first", env=(("PYTHONHOME", "/nowhere"),))
    async with RunningRelay(tmp_path, specs=[broken], away_wait_s=0.2) as relay:
        tools = (await relay.http.post("/first", **relay.modern("tools/list"))).json()["result"]["tools"]
        assert "echo" in [tool["name"] for tool in tools]
    async with RunningRelay(tmp_path, specs=[StdioSpec("first", "false")], away_wait_s=0.2) as relay:
        tools = (await relay.http.post("/first", **relay.modern("tools/list"))).json()["result"]["tools"]
        assert tools == []


async def test_tools_are_listed_in_the_order_of_their_names(relay: RunningRelay) -> None:
    tools = (await relay.http.post("/first", **relay.modern("tools/list"))).json()["result"]["tools"]
    names = [tool["name"] for tool in tools]
    assert names == sorted(names) and len(names) > 5


async def test_no_page_can_take_the_name_of_an_upstream(relay: RunningRelay) -> None:
    probe = await relay.http.get("/-/probe/first")
    assert (probe.status_code, probe.json()["error"]) == (403, "configured")


async def test_a_server_can_be_connected_again_by_hand(relay: RunningRelay) -> None:
    before = await pid(relay)
    assert (await relay.http.post("/-/upstreams/first/reconnect")).status_code == 200
    await until(lambda: not is_alive(before))
    assert await pid(relay) != before
    unknown = await relay.http.post("/-/upstreams/nothing/reconnect")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "unknown_server")
    anonymous = await relay.http.post("/-/upstreams/first/reconnect", headers={"Authorization": "Bearer no"})
    assert anonymous.status_code == 401


@pytest.mark.starts_process
async def test_the_status_has_the_fault_and_the_time_of_the_next_attempt(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[StdioSpec("bad", "no-such-program")]) as relay:
        async with asyncio.timeout(BOUND_S):
            while (shown := await row(relay, "bad"))["next_retry_s"] is None:
                await pause()
        assert "attempts, next in" in shown["problem"] and "no-such-program" in shown["problem"]
