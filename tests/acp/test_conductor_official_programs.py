"""Programs of other projects: the official SDKs of both languages, acpx as an editor, fast-agent as an agent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.acp_child import AGENT, Tools
from tests.support.bridge_harness import until
from tests.support.child_process import WAIT_S
from tests.support.cpython_worker import CPythonWorker
from tests.support.nodejs import MODULES, node
from tests.support.running_relay import RunningRelay

HERE = Path(__file__).parent
EDITOR = HERE / "peers" / "editor.mjs"
ACPX = MODULES / "acpx" / "dist" / "cli.js"


@asynccontextmanager
async def conductor(home: Path, *flags: str) -> AsyncIterator[list[str]]:
    """The command of a conductor whose relay has a browser."""
    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
        yield [sys.executable, "-m", "tabrelay", "acp", "--home", str(home), "--port", str(relay.port), *flags, "--"]


def make_editor(acp: ModuleType) -> Any:
    """An editor on the official Python SDK, whose import takes a second: only the process of these tests loads it."""

    class Listener(acp.Client):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.words: list[str] = []

        async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
            self.words.append(update.content.text)

    return Listener()


async def test_editor_and_agent_on_the_official_python_sdk_work_unchanged(tmp_path: Path) -> None:
    import acp
    from acp import schema

    text = " ".join(str(number) for number in range(200))
    async with conductor(tmp_path) as command:
        agent = [*command, sys.executable, str(HERE / "peers" / "sdk_agent.py")]
        editor = make_editor(acp)
        # It gives a program two seconds to end, which is short on a busy machine.
        patience = {"shutdown_timeout": WAIT_S}
        async with acp.spawn_agent_process(editor, *agent, env=dict(os.environ), transport_kwargs=patience) as (
            connection,
            process,
        ):
            greeted = await connection.initialize(protocol_version=1)
            assert greeted.agent_capabilities is not None
            assert greeted.agent_capabilities.mcp_capabilities is not None
            assert greeted.agent_capabilities.mcp_capabilities.acp is True
            theirs = schema.AcpMcpServer(type="acp", name="theirs", server_id="7")
            session = await connection.new_session(cwd="/", mcp_servers=[theirs])
            prompt: list[Any] = [acp.text_block(text)]
            answer = await connection.prompt(session_id=session.session_id, prompt=prompt)
            assert answer.stop_reason == "end_turn"
            await connection.load_session(cwd="/", session_id="old", mcp_servers=[theirs])
            await connection.prompt(session_id="old", prompt=[acp.text_block("again")])
            params = {"a": [1, None]}
            said = await connection.ext_method("vendor/thing", params)
            assert said == {"method": "vendor/thing", "params": params}
            await until(lambda: editor.words[-1] == "again")
    # The SDK's own models accept both servers as programs to start.
    servers = ["McpServerStdio:theirs", "McpServerStdio:notes"]
    assert editor.words == [*servers, *text.split(), *servers, "again"]
    assert process.returncode == 0


async def test_the_example_agent_of_the_python_sdk_works_unchanged(tmp_path: Path) -> None:
    import acp

    example = MODULES.parent / "build" / "acp-examples" / "agent.py"
    if not example.is_file():
        pytest.skip("the SDK's examples are not here: python3 .ci/setup.py test brings them")
    async with conductor(tmp_path) as command:
        editor = make_editor(acp)
        patience = {"shutdown_timeout": WAIT_S}
        async with acp.spawn_agent_process(
            editor, *command, sys.executable, str(example), env=dict(os.environ), transport_kwargs=patience
        ) as (connection, process):
            greeted = await connection.initialize(protocol_version=1)
            assert greeted.agent_info is not None and greeted.agent_info.name == "example-agent"
            session = await connection.new_session(cwd="/", mcp_servers=[])
            answer = await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("one two")])
            assert answer.stop_reason == "end_turn"
            assert await connection.ext_method("vendor/thing", {}) == {"example": "response"}
            await until(lambda: len(editor.words) == 2)
    assert editor.words == ["Client sent:", "one two"]
    assert process.returncode == 0


async def edit(cwd: Path, agent: list[str], *prompts: str) -> Any:
    """What the editor on the official TypeScript SDK received."""
    ended = await node(EDITOR, json.dumps(prompts), *agent, timeout_s=180, env={"EDITOR_CWD": str(cwd)})
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


async def test_an_editor_on_the_official_typescript_sdk_provides_a_server(tmp_path: Path) -> None:
    async with conductor(tmp_path) as command:
        prompts = ('call editor greet {"name": "you"}', 'call notes add {"a": 2, "b": 3}')
        found = await edit(tmp_path, [*command, sys.executable, AGENT, "early"], *prompts)
        greeted, added = map(json.loads, found["said"])
        # The agent is of the handshake era, and the editor uses MCP 2026-07-28 in envelopes.
        assert greeted["content"][0]["text"] == "Hello you, says the editor to agent"
        assert found["calls"] == ["server/discover", "tools/call"]
        assert added["structuredContent"] == {"result": 5}
        assert (found["acp"], found["stopReasons"]) == (True, ["end_turn", "end_turn"])


async def acpx(home: Path, agent: list[str], prompt: str) -> str:
    asks = ["--approve-all", "--timeout", "150", "--cwd", str(home), "--agent", " ".join(agent), "exec"]
    ended = await node(ACPX, *asks, prompt, timeout_s=180, env={"HOME": str(home)})
    assert ended.code == 0, ended.err
    return ended.out


async def test_acpx_is_an_editor(tmp_path: Path) -> None:
    async with conductor(tmp_path) as command:
        said = await acpx(tmp_path, [*command, sys.executable, AGENT], 'call notes add {"a": 2, "b": 3}')
        assert '"structuredContent": {"result": 5}' in said


async def test_an_agent_that_accepts_servers_over_http_only_calls_the_browsers_tools(tmp_path: Path) -> None:
    """As Copilot CLI 1.0 does: it advertises HTTP, refuses programs without a word, and opens the session."""
    async with conductor(tmp_path) as command:
        said = await acpx(tmp_path, [*command, sys.executable, AGENT, "http"], 'call notes add {"a": 2, "b": 3}')
        assert '"structuredContent": {"result": 5}' in said
    async with conductor(tmp_path / "other", "--bridge", "stdio") as command:
        said = await acpx(tmp_path, [*command, sys.executable, AGENT, "http"], 'call notes add {"a": 2, "b": 3}')
        assert "no such server: notes" in said


@pytest.fixture
def fast_agent() -> list[str]:
    """The command of an agent that follows the prompt. The set-up installs it where it is available."""
    program = MODULES.parent / "build" / "fast-agent" / "bin" / "fast-agent-acp"
    if not (program.parents[1] / ".tabrelay").is_file():
        why = program.parents[1] / "why.txt"
        pytest.skip(why.read_text() if why.is_file() else "no fast-agent is here: python3 .ci/setup.py test brings it")
    return [str(program), "--model", "passthrough"]


async def test_fast_agent_uses_browser_and_editor_by_way_of_programs(tmp_path: Path, fast_agent: list[str]) -> None:
    async with conductor(tmp_path, "--bridge", "stdio") as command:
        prompts = ('***CALL_TOOL editor__greet {"name": "you"}', '***CALL_TOOL notes__add {"a": 2, "b": 3}')
        greeted, added = (await edit(tmp_path, [*command, *fast_agent], *prompts))["said"]
        assert "Hello you, says the editor to" in greeted
        assert added == '{"result":5}'


async def test_fast_agent_uses_the_relay_itself(tmp_path: Path, fast_agent: list[str]) -> None:
    async with conductor(tmp_path) as command:
        said = await acpx(tmp_path, [*command, *fast_agent], '***CALL_TOOL notes__add {"a": 2, "b": 3}')
        assert "notes/add (completed)" in said and '\n{"result":5}\n' in said
