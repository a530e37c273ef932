"""`tabrelay acp` as editors start it: real processes on both sides, which all end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tabrelay.acp.child import ChildError, ChildProcess
from tests.support.acp_child import AGENT, Child, Tools
from tests.support.child_process import all_children, children, gone, memory, quiet
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


@asynccontextmanager
async def child(home: Path, *flags: str, agent: tuple[str, ...] = (sys.executable, AGENT)) -> AsyncIterator[Child]:
    async with Child("--home", home, "--port", "1", *flags, "--", *agent) as found:
        yield found


@pytest.mark.parametrize("when", ["early", "late"])
async def test_a_prompt_calls_a_browser_tool_through_a_real_agent(tmp_path: Path, when: str) -> None:
    async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
        arguments = ("--home", tmp_path, "--port", str(relay.port), "--", sys.executable, AGENT, when)
        async with Child(*arguments) as editor:
            greeted = await editor.ask(0, "initialize", protocolVersion=1)
            assert greeted["result"]["agentCapabilities"]["mcpCapabilities"] == {"acp": True}
            opened = await editor.ask(1, "session/new", cwd="/", mcpServers=[])
            assert opened["result"] == {"sessionId": "s1"}
            said = json.loads(await editor.prompt(2, 'call notes add {"a": 2, "b": 3}'))
            assert said["structuredContent"] == {"result": 5}
            pids = json.loads(await editor.prompt(3, "pids"))
            editor.stdin.close()
            assert await editor.ended() == 0
            for pid in pids:
                await gone(pid)
            assert await editor.log() == ""


async def test_the_agents_own_flags_and_its_exit_code_are_its_own(tmp_path: Path) -> None:
    agent = (sys.executable, AGENT, "--server", "x", "--", "-v")
    async with child(tmp_path, agent=agent) as editor:
        await editor.ask(0, "initialize")
        editor.send(id=1, method="session/prompt", params={"prompt": [{"type": "text", "text": "die 7"}]})
        answer = await editor.next()
        assert answer["id"] == 1 and "ended with code 7" in answer["error"]["message"]
        assert await editor.ended() == 7


async def test_an_agent_that_is_killed_is_reported_and_counts_as_failed(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        editor.send(id=1, method="hang")
        await editor.ask(2, "unknown")  # answered by the agent, so it has received the earlier request too
        os.kill(agent, signal.SIGKILL)
        answer = await editor.next()
        assert answer["id"] == 1 and "SIGKILL" in answer["error"]["message"]
        assert await editor.ended() == 128 + signal.SIGKILL


async def test_an_agent_that_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    async with child(tmp_path, agent=(sys.executable, AGENT, "stubborn")) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        editor.stdin.close()
        assert await editor.ended() == 0
        await gone(agent)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_and_its_agent(tmp_path: Path, number: signal.Signals) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        editor.process.send_signal(number)
        assert await editor.ended() == 0
        await gone(agent)


async def test_a_second_signal_ends_it_and_its_agent_at_once(tmp_path: Path) -> None:
    async with child(tmp_path, agent=(sys.executable, AGENT, "stubborn")) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        for number in (signal.SIGTERM, signal.SIGHUP):  # two of a kind may be delivered as one
            editor.process.send_signal(number)
        assert await editor.ended() in (-signal.SIGTERM, -signal.SIGHUP)
        await gone(agent)


async def test_an_editor_that_no_longer_reads_ends_it(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        editor.close_output()
        editor.send(id=1, method="session/list")
        assert await editor.ended() == 0
        await gone(agent)


@pytest.mark.parametrize("lines", [1, 40], ids=["one line", "more than is taken"])
async def test_an_editor_that_disappears_is_noticed_while_the_agent_does_not_read(tmp_path: Path, lines: int) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        os.kill(agent, signal.SIGSTOP)
        try:
            for number in range(lines):
                editor.send(id=number, method="session/prompt", params={"text": "x" * 400_000})
            await quiet(editor.process.pid)
            editor.stdin.transport.abort()
            editor.close_output()
            assert await editor.ended() == 0
            await gone(agent)
        finally:
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGCONT)  # it has our stderr, which is read to its end


async def test_a_missing_program_is_reported_to_the_editor(tmp_path: Path) -> None:
    async with child(tmp_path, agent=("no-such-agent",)) as editor:
        answer = await editor.ask(0, "initialize")
        assert 'no program "no-such-agent"' in answer["error"]["message"]
        assert await editor.ended() == 1
        assert "no-such-agent" in await editor.log()


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("#!/no/such/interpreter\n", 0o700, "first line names"),
        ("#!/bin/sh\n", 0o600, "chmod +x"),
        ("no program", 0o700, "Exec format error"),
        (None, 0o700, "folder"),
    ],
)
@pytest.mark.starts_process
async def test_an_agent_that_can_not_be_started_is_reported_with_advice(
    tmp_path: Path, text: str | None, mode: int, said: str
) -> None:
    program = tmp_path / "agent"
    if text is None:
        program.mkdir()
    else:
        program.write_text(text)
        program.chmod(mode)
    unstarted = ChildProcess([str(program)])
    with pytest.raises(ChildError) as problem:
        await unstarted.start()
    assert said in str(problem.value) and str(program) in str(problem.value)


def is_started(pid: int) -> bool:
    """Whether the agent is among its children. A library first asks the system for its own libraries, through a child
    as well; and each child has its parent's command line at first, which names the agent too."""
    with suppress(OSError):  # one has just ended
        lines = [Path(f"/proc/{child}/cmdline").read_text() for child in children(pid)]
        return any(line.split("\0")[1:2] == [AGENT] for line in lines)
    return False


@pytest.mark.parametrize("stage", ["starting", "opening", "open", "talking"])
async def test_a_signal_at_any_time_leaves_no_process(tmp_path: Path, stage: str) -> None:
    """The agent records the processes that it starts."""
    noted = tmp_path / "pids"
    async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
        agent = (sys.executable, AGENT, "early", f"note={noted}")
        async with Child("--home", tmp_path, "--port", str(relay.port), "--", *agent) as editor:
            editor.send(id=0, method="initialize", params={"protocolVersion": 1})
            if stage == "starting":
                await until(lambda: is_started(editor.process.pid))
            else:
                await editor.until(lambda message: message.get("id") == 0)
                editor.send(id=1, method="session/new", params={"cwd": "/", "mcpServers": []})
            if stage == "opening":
                await until(lambda: noted.exists() and noted.read_text().endswith("\n"))
            elif stage in ("open", "talking"):
                await editor.until(lambda message: message.get("id") == 1)
            if stage == "talking":
                for id in range(2, 50):
                    editor.send(id=id, method="session/prompt", params={"prompt": [{"text": "call notes add {}"}]})
            pids = [*children(editor.process.pid), *map(int, noted.read_text().split() if noted.exists() else ())]
            assert pids
            editor.process.send_signal(signal.SIGTERM)
            assert await editor.ended() == 0
            for pid in pids:
                await gone(pid)


async def test_an_editor_that_leaves_at_once_starts_no_agent_and_gets_no_error(tmp_path: Path) -> None:
    async with child(tmp_path, agent=(sys.executable, "-c", "raise SystemExit('started')")) as editor:
        editor.stdin.close()
        assert await editor.ended() == 0
        assert await editor.log() == ""


async def test_what_an_agent_writes_on_stderr_goes_to_the_editor_in_any_amount(tmp_path: Path) -> None:
    noise = "import sys; [sys.stderr.write('n' * 1023 + '\\n') for _ in range(4096)]; print(sys.stdin.readline())"
    async with child(tmp_path, agent=(sys.executable, "-c", noise)) as editor:
        editor.send(id=0, method="initialize", params={})
        assert (await editor.next())["method"] == "initialize", "it echoes"
        assert await editor.ended() == 0
        assert (await editor.log()).count("n" * 1023) == 4096


async def test_requests_that_the_editor_sent_before_it_left_are_still_answered(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")  # so that it runs: its start-up time is not tested here
        for number in (1, 2, 3):
            editor.send(id=number, method="nonsense", params={})
        editor.stdin.close()
        assert [(await editor.next())["id"] for _ in range(3)] == [1, 2, 3]
        assert await editor.ended() == 0


async def test_large_lines_pass_and_larger_ones_are_refused(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        text = "x" * (8 << 20)
        assert await editor.prompt(1, text) == text
        refused = await editor.ask(2, "session/prompt", text="y" * (51 << 20))
        assert refused["error"]["code"] == -32600 and "50 MiB" in refused["error"]["message"]
        assert await editor.prompt(3, "still there") == "still there"


LINES, SIZE = 48, 1 << 20
GROWTH = 24 << 20
"""Half of the unread output. 6 to 9 MiB were measured in transit to the agent, and 13 to the editor."""


async def test_an_agent_that_does_not_read_makes_the_editor_wait_and_nothing_piles_up(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = children(editor.process.pid)
        before = memory(editor.process.pid)
        os.kill(agent, signal.SIGSTOP)
        try:
            for number in range(LINES):
                editor.send(id=number, method="nothing", params={"text": "x" * SIZE})
            await quiet(editor.process.pid)
            assert editor.stdin.transport.get_write_buffer_size() > (LINES - 8) * SIZE, "it read too much"
        finally:
            os.kill(agent, signal.SIGCONT)
        assert [(await editor.next())["id"] for _ in range(LINES)] == list(range(LINES))
        assert memory(editor.process.pid) - before < GROWTH


async def test_an_editor_that_does_not_read_makes_the_agent_wait_and_nothing_piles_up(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        before = memory(editor.process.pid)
        editor.pause()
        prompt = [{"type": "text", "text": f"flood {LINES} {SIZE}"}]
        editor.send(id=1, method="session/prompt", params={"prompt": prompt})
        await quiet(editor.process.pid)
        editor.resume()
        numbers = [(await editor.next())["params"].get("number") for _ in range(LINES)]
        assert numbers == list(range(LINES))
        assert (await editor.until(lambda message: message.get("id") == 1))["result"]
        assert memory(editor.process.pid) - before < GROWTH


async def test_proxies_run_between_editor_and_agent_in_the_order_of_the_command_line(tmp_path: Path) -> None:
    proxy = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).parent / 'peers' / 'proxy.py'))}"
    async with child(tmp_path, "--proxy", f"{proxy} first", "--proxy", f"{proxy} second") as editor:
        greeted = await editor.ask(0, "initialize", protocolVersion=1)
        assert greeted["result"]["agentCapabilities"]["mcpCapabilities"] == {"acp": True}
        await editor.ask(1, "session/new", cwd="/", mcpServers=[])
        assert await editor.prompt(2, "hello") == "second first hello"
        pids = children(editor.process.pid)
        assert len(pids) == 3
        editor.stdin.close()
        assert await editor.ended() == 0
        for pid in pids:
            await gone(pid)


async def test_a_proxy_that_is_killed_leaves_no_process_and_no_waiting_request(tmp_path: Path) -> None:
    proxy = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).parent / 'peers' / 'proxy.py'))}"
    async with child(tmp_path, "--proxy", f"{proxy} first", "--proxy", f"{proxy} second") as editor:
        await editor.ask(0, "initialize", protocolVersion=1)
        pids = children(editor.process.pid)
        assert len(pids) == 3
        everything = all_children(editor.process.pid)
        editor.send(id="h", method="hang", params={})
        await editor.ask(1, "unknown")  # answered by the agent, so it has received the earlier request too
        os.kill(pids[1], signal.SIGKILL)  # the agent was started first
        answer = await editor.next()
        assert answer["id"] == "h" and "A proxy is gone" in answer["error"]["message"]
        assert "SIGKILL" in answer["error"]["message"]
        assert await editor.ended() == 128 + signal.SIGKILL
        for pid in everything:
            await gone(pid)


async def test_a_proxy_that_can_not_be_read_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    async with child(tmp_path, "--proxy", "it's") as editor:
        assert await editor.ended() == 2
        assert "--proxy" in await editor.log()
