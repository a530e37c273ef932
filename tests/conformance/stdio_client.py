"""The client that the conformance suite starts: `tabrelay stdio URL` before the suite's server, and what it wants done.

Where the suite looks at MCP, the official SDK's client speaks through the bridge. Where it looks at OAuth, which is the
bridge's own, a few lines of JSON do: the SDK takes seconds to load, and there are many such scenarios.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
METADATA_URL = "https://conformance-test.local/client-metadata.json"
MODERN = "2026-07-28"
WAIT_S = 300.0


def bridge(url: str, home: str, context: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    with socket.socket() as free:  # one per client: a client that moves to another port has to register anew
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--home", home, "--log-level", "info", "--callback-port", str(port)]
    if scenario == "auth/basic-cimd":
        flags += ["--client-metadata-url", METADATA_URL]
    env = {**os.environ, "BROWSER": f"{sys.executable} {HERE / 'visit.py'} %s", "NO_PROXY": "*", "no_proxy": "*"}
    if "client_id" in context:
        flags += ["--client-id", context["client_id"]]
    if "client_secret" in context:
        flags += ["--client-secret-env", "CONFORMANCE_SECRET"]
        env["CONFORMANCE_SECRET"] = context["client_secret"]
    if "client-credentials" in scenario:
        flags += ["--grant", "client_credentials"]
    return ["-m", "tabrelay", "stdio", url, *flags], env


class Talk:
    """JSON lines with the bridge. A refused request is for the suite to judge."""

    def __init__(self, process: asyncio.subprocess.Process, is_modern: bool) -> None:
        self._process = process
        self._is_modern = is_modern
        self._id = 0

    async def ask(self, method: str, **params: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        self._id += 1
        if self._is_modern:
            prefix = "io.modelcontextprotocol/"
            info = {"name": "conformance", "version": "1"}
            params["_meta"] = {
                f"{prefix}protocolVersion": MODERN,
                f"{prefix}clientCapabilities": {},
                f"{prefix}clientInfo": info,
            }
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._id:
                print(method, json.dumps(answer)[:300], file=sys.stderr)
                return answer
        raise SystemExit("the bridge ended")

    async def tell(self, method: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")


async def authorize(url: str, version: str, context: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as home:
        command, env = bridge(url, home, context)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe, env=env)
        try:
            async with asyncio.timeout(WAIT_S):
                talk = Talk(process, version == MODERN)
                if version == MODERN:
                    await talk.ask("server/discover")
                else:
                    info = {"name": "conformance", "version": "1"}
                    await talk.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=info)
                    await talk.tell("notifications/initialized")
                listed = await talk.ask("tools/list")
                for tool in listed.get("result", {}).get("tools", []):
                    await talk.ask("tools/call", name=tool["name"], arguments={})
        finally:
            assert process.stdin
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await process.wait()
            if process.returncode is None:
                process.kill()


async def speak(url: str, scenario: str, version: str, context: dict[str, Any]) -> None:
    from driving import drive  # type: ignore[import-not-found]  # beside this file
    from mcp.client.stdio import StdioServerParameters, stdio_client

    with tempfile.TemporaryDirectory() as home:
        command, env = bridge(url, home, context)
        server = StdioServerParameters(command=sys.executable, args=command, env=env)
        await drive(stdio_client(server), scenario, version, context)


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """The suite starts all clients at once; two at a time is what a small machine can take."""
    with contextlib.ExitStack() as stack:
        folder = os.environ.get("CONFORMANCE_TURNS")
        places = [stack.enter_context(open(Path(folder) / str(number), "w")) for number in (1, 2)] if folder else []
        while places and not any(map(takes, places)):
            time.sleep(0.05)
        yield


def takes(place: Any) -> bool:
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def main() -> None:
    url = sys.argv[1]
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with turn():
        if scenario.startswith("auth/"):
            asyncio.run(authorize(url, version, context))
        else:
            asyncio.run(speak(url, scenario, version, context))


if __name__ == "__main__":
    main()
