"""Time that messages take of the event loops of `tabrelay stdio` and `tabrelay acp`: neither one large message nor many
small ones stop a loop."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from tabrelay.config.settings import MIB
from tests.behaviour.test_loop_time import LIMIT_MS
from tests.support.acp_child import AGENT, Child
from tests.support.bridge_harness import BridgeProcess
from tests.support.child_process import Program
from tests.support.fake_upstream import Reply, Upstream
from tests.support.json_shapes import largest
from tests.support.measured_command import slowest
from tests.support.waiting import BOUND_S

# Four times as many values as a relay accepts: other servers may send them.
MANY = largest("objects with long keys", 16 * MIB, 800_000)
LINES = 20_000


def measure(program: Program, figures: Path) -> None:
    """Environment for a program that is about to be started."""
    program._command[1:3] = ["-m", "tests.support.measured_command", str(figures)]


async def skim(child: Program, id: object) -> None:
    """Read lines until the answer with this id."""
    async with asyncio.timeout(BOUND_S):
        while True:
            line = await child.line()
            assert line
            if f'"id":{json.dumps(id)}'.encode() in line.replace(b" ", b""):
                return


async def test_the_bridge(tmp_path: Path) -> None:
    async def answer(reply: Reply) -> None:
        text = f'{{"jsonrpc":"2.0","id":{reply.seen.message["id"]},"result":{{"content":[],"a":{MANY}}}}}'
        if reply.seen.message["id"] == 7:
            await reply.body(text.encode(), 200, "application/json")
            return
        await reply.stream()
        await reply.chunk(f"data: {text}\n\n".encode())
        await reply.end()

    async with Upstream({"tools/call": answer}) as server:
        child = BridgeProcess(server.url)
        measure(child, tmp_path / "figures")
        async with child:
            await child.initialize()
            await child.ask("ping")
            child.process.send_signal(signal.SIGUSR1)
            for id in (7, 8):
                request = (
                    f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a","arguments":{MANY}}}}}'
                )
                await child.write(request.encode() + b"\n")
                await skim(child, id)
            await child.write(b"1\n" * LINES)
            await child.write(b'{"jsonrpc":"2.0","id":9,"method":"ping"}\n')
            await skim(child, 9)
            child.close()
            await child.ended()
    assert slowest(tmp_path / "figures").ms < LIMIT_MS, slowest(tmp_path / "figures")


async def test_the_conductor(tmp_path: Path) -> None:
    editor = Child("--home", tmp_path, "--port", "1", "--", sys.executable, AGENT)
    measure(editor, tmp_path / "figures")
    async with editor:
        about: dict[str, Any] = {"protocolVersion": 1, "clientCapabilities": {}}
        await editor.ask(0, "initialize", **about)
        editor.process.send_signal(signal.SIGUSR1)
        editor.stdin.write(f'{{"jsonrpc":"2.0","method":"x","params":{{"a":{MANY}}}}}\n'.encode())
        editor.stdin.write(b"{}\n" * LINES)
        await editor.ask(1, "initialize", **about)
        editor.close()
        await editor.ended()
    assert slowest(tmp_path / "figures").ms < LIMIT_MS, slowest(tmp_path / "figures")
