"""Client of the conformance suite that uses the bridge: starts `tabrelay stdio URL` with the address of the suite's
server.

Where the suite checks MCP, the official SDK's client sends its messages through the bridge. Where it checks OAuth,
which the bridge does, a few lines of JSON are enough, and the bridge is a fork of `bridge_template.py`. The bridge is a
separate process for each scenario; its client is not.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.conformance.bridge_template import start
from tests.conformance.client_tasks import ClientTask
from tests.conformance.driving import drive

HERE = Path(__file__).parent
METADATA_URL = "https://conformance-test.local/client-metadata.json"
MODERN = "2026-07-28"
WAIT_S = 300.0


def bridge(task: ClientTask, home: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment."""
    context = task.context
    with socket.socket() as free:  # one for each client: a client that moves to another port has to register anew
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--home", home, "--log-level", "info", "--callback-port", str(port)]
    if task.scenario == "auth/basic-cimd":
        flags += ["--client-metadata-url", METADATA_URL]
    env = {**os.environ, "BROWSER": f"{sys.executable} {HERE / 'visit.py'} %s", "NO_PROXY": "*", "no_proxy": "*"}
    if "client_id" in context:
        flags += ["--client-id", context["client_id"]]
    if "client_secret" in context:
        flags += ["--client-secret-env", "CONFORMANCE_SECRET"]
        env["CONFORMANCE_SECRET"] = context["client_secret"]
    if "client-credentials" in task.scenario:
        flags += ["--grant", "client_credentials"]
    if "private_key_pem" in context:
        key = Path(home) / "client.pem"
        key.write_text(context["private_key_pem"])
        flags += ["--client-key", str(key)]
    if "valid_jwt" in context:
        flags += ["--grant", "workload_identity", "--assertion-env", "CONFORMANCE_ASSERTION"]
        env["CONFORMANCE_ASSERTION"] = context["valid_jwt"]
    if "idp_id_token" in context:
        flags += ["--grant", "enterprise_managed", "--assertion-env", "CONFORMANCE_ASSERTION"]
        flags += ["--idp", context["idp_issuer"], "--idp-client-id", context["idp_client_id"]]
        env["CONFORMANCE_ASSERTION"] = context["idp_id_token"]
    return ["-m", "tabrelay", "stdio", task.url, *flags], env


class BridgeClient:
    """JSON lines to and from the bridge. The suite checks refused requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_modern: bool) -> None:
        self._reader = reader
        self._writer = writer
        self._is_modern = is_modern
        self._id = 0
        self.said: list[str] = []

    async def ask(self, method: str, **params: Any) -> Any:
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
        self._writer.write(json.dumps(message).encode() + b"\n")
        while line := await self._reader.readline():
            answer = json.loads(line)
            if answer.get("id") == self._id:
                self.said.append(f"{method} {json.dumps(answer)[:300]}")
                return answer
        raise ConnectionError("\n".join([*self.said, "the bridge ended"]))

    async def notify(self, method: str) -> None:
        self._writer.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")


async def work(template: Path, task: ClientTask) -> str | None:
    """`template`: the socket of the bridge template."""
    with tempfile.TemporaryDirectory() as home:
        command, env = bridge(task, home)
        if task.scenario.startswith("auth/"):
            return await _authorize(template, task, command, env)
        server = StdioServerParameters(command=sys.executable, args=command, env=env)
        await drive(stdio_client(server), task.scenario, task.version, task.context)
        return None


async def _authorize(template: Path, task: ClientTask, command: list[str], env: dict[str, str]) -> str:
    reader, writer = await start(template, command[2:], env)
    try:
        async with asyncio.timeout(WAIT_S):
            talk = BridgeClient(reader, writer, task.version == MODERN)
            if task.version == MODERN:
                await talk.ask("server/discover")
            else:
                info = {"name": "conformance", "version": "1"}
                await talk.ask("initialize", protocolVersion=task.version, capabilities={}, clientInfo=info)
                await talk.notify("notifications/initialized")
            listed = await talk.ask("tools/list")
            for tool in listed.get("result", {}).get("tools", []):
                await talk.ask("tools/call", name=tool["name"], arguments={})
            writer.write_eof()
            await reader.read()  # until the bridge has ended
            return "\n".join(talk.said)
    finally:
        writer.close()
