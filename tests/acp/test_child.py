"""`tabrelay acp` as editors start it: real processes on both sides, and nothing of them left at the end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.acp import WAIT_S
from tests.support.acp_child import AGENT, Child, Tools
from tests.support.cpython_worker import CPythonWorker
from tests.support.relay import RunningRelay


@asynccontextmanager
async def child(home: Path, *flags: str, agent: tuple[str, ...] = (sys.executable, AGENT)) -> AsyncIterator[Child]:
    async with Child("--home", home, "--port", "1", *flags, "--", *agent) as found:
        yield found


async def gone(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            if _has_ended(pid):
                return
            await asyncio.sleep(0.02)


def _has_ended(pid: int) -> bool:
    """Also one that nobody has collected yet: that is up to whoever started it."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return ") Z " in stat.read_text()
    except OSError:
        return True


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


async def test_an_agent_that_does_not_want_to_end_is_ended(tmp_path: Path) -> None:
    async with child(tmp_path, agent=(sys.executable, AGENT, "stubborn")) as editor:
        await editor.ask(0, "initialize")
        [agent] = _children(editor.process.pid)
        editor.stdin.close()
        assert await editor.ended() == 0
        await gone(agent)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_and_its_agent(tmp_path: Path, number: signal.Signals) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = _children(editor.process.pid)
        editor.process.send_signal(number)
        assert await editor.ended() == 0
        await gone(agent)


async def test_an_editor_that_no_longer_reads_ends_it(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        [agent] = _children(editor.process.pid)
        editor._stdout._transport.close()  # type: ignore[attr-defined]
        editor.send(id=1, method="session/list")
        assert await editor.ended() == 0
        await gone(agent)


async def test_a_program_that_there_is_not_is_said_to_the_editor(tmp_path: Path) -> None:
    async with child(tmp_path, agent=("no-such-agent",)) as editor:
        answer = await editor.ask(0, "initialize")
        assert 'no program "no-such-agent"' in answer["error"]["message"]
        assert await editor.ended() == 1
        assert "no-such-agent" in await editor.log()


async def test_what_the_editor_said_before_it_left_is_still_answered(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        editor.send(id=0, method="initialize", params={})
        editor.send(id=1, method="nonsense", params={})
        editor.stdin.close()
        assert [(await editor.next())["id"] for _ in range(2)] == [0, 1]
        assert await editor.ended() == 0


async def test_large_lines_pass_and_larger_ones_are_refused(tmp_path: Path) -> None:
    async with child(tmp_path) as editor:
        await editor.ask(0, "initialize")
        text = "x" * (8 << 20)
        assert await editor.prompt(1, text) == text
        refused = await editor.ask(2, "session/prompt", text="y" * (51 << 20))
        assert refused["error"]["code"] == -32600 and "50 MiB" in refused["error"]["message"]
        assert await editor.prompt(3, "still there") == "still there"


async def test_proxies_stand_between_the_two_in_the_order_in_which_they_were_named(tmp_path: Path) -> None:
    proxy = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).parent / 'peers' / 'proxy.py'))}"
    async with child(tmp_path, "--proxy", f"{proxy} first", "--proxy", f"{proxy} second") as editor:
        greeted = await editor.ask(0, "initialize", protocolVersion=1)
        assert greeted["result"]["agentCapabilities"]["mcpCapabilities"] == {"acp": True}
        await editor.ask(1, "session/new", cwd="/", mcpServers=[])
        assert await editor.prompt(2, "hello") == "second first hello"
        pids = _children(editor.process.pid)
        assert len(pids) == 3
        editor.stdin.close()
        assert await editor.ended() == 0
        for pid in pids:
            await gone(pid)


async def test_a_proxy_that_can_not_be_read_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    async with child(tmp_path, "--proxy", "it's") as editor:
        assert await editor.ended() == 2
        assert "--proxy" in await editor.log()


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
