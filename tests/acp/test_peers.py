"""With programs that others wrote: the official SDKs of both languages, acpx as an editor, fast-agent as an agent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from tests.support.acp_child import AGENT, Tools
from tests.support.cpython_worker import CPythonWorker
from tests.support.node import MODULES, node
from tests.support.relay import RunningRelay

HERE = Path(__file__).parent
EDITOR = HERE / "peers" / "editor.mjs"
ACPX = MODULES / "acpx" / "dist" / "cli.js"
FAST_AGENT = os.environ.get("TABRELAY_FAST_AGENT", "")
"""The path of `fast-agent-acp`, which wants a newer Python than we do."""


@asynccontextmanager
async def conductor(home: Path, *flags: str) -> AsyncIterator[list[str]]:
    """The command of a conductor whose relay has a browser."""
    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
        await relay.has_read("notes")
        yield [sys.executable, "-m", "tabrelay", "acp", "--home", str(home), "--port", str(relay.port), *flags, "--"]


class Listener(acp.Client):
    """An editor on the official Python SDK."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.words.append(update.content.text)


async def test_editor_and_agent_on_the_official_python_sdk_do_not_notice_us(tmp_path: Path) -> None:
    text = " ".join(str(number) for number in range(200))
    async with conductor(tmp_path) as command:
        agent = [*command, sys.executable, str(HERE / "peers" / "sdk_agent.py")]
        editor = Listener()  # type: ignore[abstract]
        async with acp.spawn_agent_process(editor, *agent, env=dict(os.environ)) as (connection, process):
            greeted = await connection.initialize(protocol_version=1)
            assert greeted.agent_capabilities is not None
            assert greeted.agent_capabilities.mcp_capabilities is not None
            assert greeted.agent_capabilities.mcp_capabilities.acp is True
            theirs = schema.AcpMcpServer(type="acp", name="theirs", server_id="7")
            session = await connection.new_session(cwd="/", mcp_servers=[theirs])
            prompt: list[Any] = [acp.text_block(text)]
            answer = await connection.prompt(session_id=session.session_id, prompt=prompt)
            assert answer.stop_reason == "end_turn"
    # Both servers are what the SDK's own models take for a program to start.
    assert editor.words[:2] == ["McpServerStdio:theirs", "McpServerStdio:notes"]
    assert editor.words[2:] == text.split()
    assert process.returncode == 0


async def test_an_editor_on_the_official_typescript_sdk_provides_a_server(tmp_path: Path) -> None:
    async with conductor(tmp_path) as command:
        agent = [*command, sys.executable, AGENT, "early"]
        ended = await node(EDITOR, 'call editor greet {"name": "you"}', *agent, env={"EDITOR_CWD": str(tmp_path)})
        assert ended.code == 0, ended.err
        found = json.loads(ended.out)
        # The agent is of the handshake era, and the editor speaks MCP 2026-07-28 in envelopes.
        assert json.loads(found["said"])["content"][0]["text"] == "Hello you, says the editor to agent"
        assert found["calls"] == ["server/discover", "tools/call"]
        assert (found["acp"], found["stopReason"]) == (True, "end_turn")
        ended = await node(EDITOR, 'call notes add {"a": 2, "b": 3}', *agent, env={"EDITOR_CWD": str(tmp_path)})
        assert json.loads(json.loads(ended.out)["said"])["structuredContent"] == {"result": 5}


async def test_acpx_is_an_editor(tmp_path: Path) -> None:
    async with conductor(tmp_path) as command:
        agent = " ".join([*command, sys.executable, AGENT])
        asks = ["--approve-all", "--timeout", "60", "--cwd", str(tmp_path), "--agent", agent, "exec"]
        ended = await node(ACPX, *asks, 'call notes add {"a": 2, "b": 3}', env={"HOME": str(tmp_path)})
        assert ended.code == 0, ended.err
        assert '"structuredContent": {"result": 5}' in ended.out


@pytest.mark.skipif(not FAST_AGENT, reason="TABRELAY_FAST_AGENT does not name a fast-agent-acp")
@pytest.mark.parametrize("editor", ["acpx", "typescript"])
async def test_fast_agent_is_an_agent(tmp_path: Path, editor: str) -> None:
    async with conductor(tmp_path) as command:
        agent = [*command, FAST_AGENT, "--model", "passthrough"]
        if editor == "acpx":
            asks = ["--approve-all", "--timeout", "60", "--cwd", str(tmp_path), "--agent", " ".join(agent), "exec"]
            ended = await node(ACPX, *asks, '***CALL_TOOL notes__add {"a": 2, "b": 3}', env={"HOME": str(tmp_path)})
            assert "notes/add (completed)" in ended.out, ended.err
        else:
            ended = await node(
                EDITOR, '***CALL_TOOL editor__greet {"name": "you"}', *agent, env={"EDITOR_CWD": str(tmp_path)}
            )
            assert "Hello you, says the editor to" in ended.out, ended.err
