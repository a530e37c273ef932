"""A program that takes the relay's port while the relay is down gets a challenge and nothing else.

Real processes on both sides: the squatter's record is searched for secrets, which are then tried at the relay. Workers
and pages are in `tests/e2e/test_squatting.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from tabrelay.admission.tokens import Tokens
from tabrelay.server.runner import bind
from tests.support.acp_child import AGENT, Child, Tools
from tests.support.bridge_harness import BridgeProcess
from tests.support.child_process import Program
from tests.support.cpython_worker import CPythonWorker
from tests.support.port_squatter import MODES, RunningSquatter, squatter
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

VERBS = (
    ("status",),
    ("pairs",),
    ("pairs", "approve", "AAAA-BBBB"),
    ("pair",),
    ("drift", "accept", "notes"),
    ("reconnect", "notes"),
    ("tools", "notes"),
    ("call", "notes", "add", "--args", '{"a": 2, "b": 3}'),
    ("stdio", "notes", "--check"),
    ("doctor",),
)


def free_port() -> int:
    with bind("127.0.0.1", 0) as free:
        return int(free.getsockname()[1])


async def run(*arguments: str | Path) -> tuple[int, str]:
    """The exit code of a command, and its whole output."""
    verb, *rest = arguments
    async with Program(str(verb), *rest) as program:
        program.close()
        async with asyncio.timeout(90):
            out = await program._stdout.read()
            code = await program.process.wait()
        return code, out.decode() + await program.log()


async def assert_worthless(squat: RunningSquatter, relay: RunningRelay) -> None:
    """The record has no secret and nothing that works at the relay, which runs again."""
    squat.assert_no_secret(relay.token)
    for shown in squat.shown():
        answer = await relay.http.get("/-/status", headers={"Authorization": f"Bearer {shown}"})
        assert answer.status_code == 401


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
async def test_a_command_shows_another_program_nothing_and_reports_that_it_is_not_the_relay(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    port, token = free_port(), Tokens(tmp_path).master()
    async with squatter(port, tmp_path) as squat:
        code, said = await run(*verb, "--home", tmp_path, "--port", str(port))
        assert code != 0
        assert f"The program at 127.0.0.1:{port} is not your relay" in said
        got = squat.got
    squat.assert_no_secret(token)
    assert squat.shown() == []
    assert set(re.findall(rb"(?:GET|POST|PUT|DELETE) (\S+) HTTP", got)) <= {b"/-/prove", b"/-/healthz"}
    async with RunningRelay(tmp_path, port=port, servers=("notes",)):
        if verb in (("status",), ("pairs",), ("pair",)):
            assert (await run(*verb, "--home", tmp_path, "--port", str(port)))[0] == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_bridge_that_runs_shows_another_program_nothing_and_works_again_with_the_relay(
    tmp_path: Path, mode: str
) -> None:
    port = free_port()
    async with BridgeProcess("notes", "--home", str(tmp_path), "--port", str(port)) as child:
        async with (
            RunningRelay(tmp_path, port=port, servers=("notes",)) as relay,
            CPythonWorker(relay.url, relay.token, "notes", Tools()),
        ):
            assert "result" in await child.initialize()
            called = await child.call("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}, id=2)
            assert called["result"]["structuredContent"] == {"result": 5}
        async with squatter(port, tmp_path, mode) as squat:
            answer = asyncio.create_task(child.call("tools/call", {"name": "add", "arguments": {"a": "s3cret"}}, id=3))
            await squat.until_asked()
            if mode != "silent":
                async with asyncio.timeout(60):
                    error = (await answer)["error"]
                assert "The token was not sent" in error["message"] and "evil" not in error["message"]
            assert b"s3cret" not in squat.got, "a call is sent only to the relay"
        if mode == "silent":
            async with asyncio.timeout(60):
                assert "error" in await answer
        async with (
            RunningRelay(tmp_path, port=port, servers=("notes",)) as relay,
            CPythonWorker(relay.url, relay.token, "notes", Tools()),
        ):
            await relay.has_read("notes")
            await assert_worthless(squat, relay)
            again = await child.call("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}, id=4)
            assert "result" in again, again
            assert again["result"]["structuredContent"] == {"result": 5}


async def test_a_token_of_a_relay_by_any_other_flag_is_not_sent_either(tmp_path: Path) -> None:
    port, named = free_port(), Tokens(tmp_path).issue_named("laptop", ["call"])
    file = tmp_path / "given"
    file.write_text(named)
    async with squatter(port, tmp_path) as squat:
        url = f"http://127.0.0.1:{port}/notes"
        for flags in (
            ("--token-file", str(file)),
            ("--token-command", f"cat {file}"),
            ("--header", f"Authorization: Bearer {named}"),
        ):
            code, said = await run("tools", url, *flags)
            assert code != 0 and "is not your relay" in said
    squat.assert_no_secret(named)
    assert squat.shown() == []


async def test_an_editors_agent_goes_on_without_browser_tools(tmp_path: Path) -> None:
    port, token = free_port(), Tokens(tmp_path).master()
    async with (
        squatter(port, tmp_path) as squat,
        Child("--home", tmp_path, "--port", str(port), "--", sys.executable, AGENT) as editor,
    ):
        await editor.ask(0, "initialize", protocolVersion=1)
        assert (await editor.ask(1, "session/new", cwd="/", mcpServers=[]))["result"] == {"sessionId": "s1"}
        await squat.until_asked()
        editor.stdin.close()
        assert await editor.ended() == 0
        assert "is not your relay" in await editor.log()
    squat.assert_no_secret(token)
    assert squat.shown() == []


@pytest.mark.parametrize("mode", ["forward", "mirror"])
async def test_a_program_that_passes_the_challenge_on_to_another_relay_of_the_user_gets_nothing(
    tmp_path: Path, mode: str
) -> None:
    port = free_port()
    async with RunningRelay(tmp_path, servers=("notes",)) as other:
        async with squatter(port, tmp_path, mode, other.port) as squat:
            code, said = await run("status", "--home", tmp_path, "--port", str(port))
            assert code != 0 and "The token was not sent" in said
            code, said = await run("tools", "notes", "--home", tmp_path, "--port", str(port))
            assert code != 0 and "The token was not sent" in said
        await assert_worthless(squat, other)
        assert squat.shown() == []


async def test_a_relay_of_an_earlier_version_gets_no_token_and_the_user_is_asked_to_update(tmp_path: Path) -> None:
    port = free_port()
    Tokens(tmp_path).master()
    async with squatter(port, tmp_path, "old") as squat:
        code, said = await run("status", "--home", tmp_path, "--port", str(port))
        assert code != 0 and "Update and restart the relay" in said
    assert squat.shown() == []


async def test_a_bridge_whose_proof_has_ended_makes_another(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, servers=("notes",)) as relay,
        CPythonWorker(relay.url, relay.token, "notes", Tools()),
    ):
        await relay.has_read("notes")
        arguments = ("notes", "--home", str(tmp_path), "--port", str(relay.port))
        async with BridgeProcess(*arguments) as child:
            assert "result" in await child.initialize()
            before = relay.tokens._proofs()
            # As if a minute had passed: everything issued until now is too old.
            before._life_s = -1.0
            relay.tokens._issuer = None
            again = await child.call("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}, id=4)
            assert again["result"]["structuredContent"] == {"result": 5}


async def test_an_editors_agent_has_browser_tools_when_the_relay_is_back(tmp_path: Path) -> None:
    port = free_port()
    Tokens(tmp_path).master()
    async with Child("--home", tmp_path, "--port", str(port), "--", sys.executable, AGENT) as editor:
        async with squatter(port, tmp_path, "unknown") as squat:
            await editor.ask(0, "initialize", protocolVersion=1)
            await editor.ask(1, "session/new", cwd="/", mcpServers=[])
            await squat.until_asked()
        async with (
            RunningRelay(tmp_path, port=port, servers=("notes",)) as relay,
            CPythonWorker(relay.url, relay.token, "notes", Tools()),
        ):
            await relay.has_read("notes")

            async def is_known() -> bool:
                return bool((await relay.http.get("/-/status")).json()["acp"])

            await editor.ask(2, "session/new", cwd="/", mcpServers=[])
            await until(is_known, 60)
            await assert_worthless(squat, relay)
            said = json.loads(await editor.prompt(3, 'call notes add {"a": 2, "b": 3}'))
            assert said["structuredContent"] == {"result": 5}
