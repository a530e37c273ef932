"""Attacks on the relay's stored state: pinned tabs, state of sessions, catalogues of many names, open questions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from bench.peer import Linked
from bench.siege.clients import INITIALIZE, behind, many
from bench.siege.target import META, VERSION, Target
from tabserver.wire import jsonrpc
from tabserver.wire.control_messages import PIN
from tabserver.wire.errors import BufferFull
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind

PLAIN_SERVER = "plain-page"
URI_CHARACTERS = 2_000
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


class Pinning(Linked):
    """Pins a tab with an id of 1 MB for the caller of each call."""

    def _due_now(self, requests: list[Received[str]], now: float) -> list[Received[str]]:
        for event in requests:
            if '"tools/call"' in event.payload:
                note = json.dumps(jsonrpc.notification(PIN, {"tab": str(event.channel) + "x" * 1_000_000}))
                with contextlib.suppress(BufferFull):
                    self.link.send(event.channel, Kind.NOTE, note, now, related=event.id)
        return requests


async def pins(target: Target, until: float) -> None:
    """Each call comes from another client, and a tab is pinned for it."""
    socket = await behind(target, Pinning("bench", "pinning"))
    numbers = itertools.count()

    def call(http: httpx2.AsyncClient) -> Any:
        meta = META | {"io.modelcontextprotocol/clientInfo": {"name": f"client-{next(numbers)}", "version": "1"}}
        body = jsonrpc.request(1, "tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "echo", "Mcp-Protocol-Version": VERSION}
        return http.post("/bench", json=body, headers=headers)

    await many(target, call, until, 8)
    socket.cut()


def fill_states(home: Path) -> None:
    """A state file of nearly as many subscriptions as all sessions may have."""
    uris = [f"x:{number}".ljust(URI_CHARACTERS, "x") for number in range(256)]
    row = {"last_used": time.time(), "level": "debug", "subscriptions": uris}
    path = home / "sessions.json"
    path.write_text(json.dumps({f"{number:032x}": row for number in range(32)}))
    path.chmod(0o600)


async def states(target: Target, until: float) -> None:
    """Sessions that subscribe and set their log level repeatedly, with the state of `fill_states`."""
    socket = await behind(target, Linked("bench", "agreeable"))
    numbers = itertools.count()
    async with httpx2.AsyncClient(base_url=target.url, headers=target.headers, trust_env=False) as http:
        ids = [(await http.post("/bench", json=INITIALIZE)).headers.get("mcp-session-id", "") for _ in range(32)]

    def change(http: httpx2.AsyncClient) -> Any:
        number = next(numbers)
        headers = {"Mcp-Session-Id": ids[number % len(ids)]}
        subscribe = ("resources/subscribe", {"uri": f"x:{number}".ljust(URI_CHARACTERS, "x")})
        method, params = subscribe if number % 4 else ("logging/setLevel", {"level": "debug"})
        return http.post("/bench", json=jsonrpc.request(number, method, params), headers=headers)

    await many(target, change, until, 8)
    socket.cut()


class Listing(Linked):
    """Offers lists of the largest permitted number of small values, and a long description of itself."""

    def _answer(self, event: Received[str]) -> str:
        message = json.loads(event.payload)
        values = ",".join(["{}"] * 80_000)
        schema = f'{{"type":"object","enum":[{values}]}}'
        capable: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        lists = {
            "initialize": json.dumps(
                {"protocolVersion": "2025-11-25", "capabilities": capable, "serverInfo": {"name": "x", "version": "1"}}
            ),
            "tools/list": f'{{"tools":[{{"name":"t-{id(self)}","inputSchema":{schema}}}]}}',
            "resources/list": f'{{"resources":[{{"uri":"x:1","name":"x","_meta":{schema}}}]}}',
            "resources/templates/list": f'{{"resourceTemplates":[{{"uriTemplate":"x:","name":"x","_meta":{schema}}}]}}',
            "prompts/list": f'{{"prompts":[{{"name":"x","_meta":{schema}}}]}}',
        }
        result = lists.get(message["method"], "{}")
        return f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{result}}}'


async def catalogues(target: Target, until: float) -> None:
    """40 names, each with four lists of 240 KB in small values, which come and go."""
    number = itertools.count()
    while monotonic() < until:
        names = [f"lists-{next(number) % 40}" for _ in range(10)]
        sockets = []
        for name in names:
            with contextlib.suppress(OSError):
                sockets.append(await behind(target, Listing(name, f"of-{name}"), name))
        await asyncio.sleep(min(0.5, max(0.0, until - monotonic())))
        for socket in sockets:
            socket.cut()


async def questions(target: Target, until: float) -> None:
    """A plain page that asks without end during each call, and a client that never answers."""
    question = {"message": "x" * 20_000, "requestedSchema": {"type": "object", "properties": {}}}

    async def page() -> None:
        ids = itertools.count()
        address = f"ws://{target.host}:{target.port}/{PLAIN_SERVER}"
        async with connect(address, origin=target.url, proxy=None, max_size=None) as socket:  # type: ignore[arg-type]
            calls: list[Any] = []
            while monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.001):
                        message = json.loads(await socket.recv())
                        if message.get("method") == "initialize":
                            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
                            result = {"protocolVersion": "2025-06-18", **about}
                            await socket.send(json.dumps(jsonrpc.result_message(message["id"], result)))
                        elif message.get("method") == "tools/list":
                            await socket.send(json.dumps(jsonrpc.result_message(message["id"], {"tools": []})))
                        elif message.get("method") == "tools/call":
                            calls.append(message["id"])
                for call in calls[-16:] * 20:
                    asked = jsonrpc.request(f"q{next(ids)}".ljust(1_000, "x"), "elicitation/create", question)
                    await socket.send(json.dumps({**asked, "relatedRequestId": call}))

    async def client() -> None:
        meta = META | {"io.modelcontextprotocol/clientCapabilities": ABLE}
        body = jsonrpc.request(1, "tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "echo", "Mcp-Protocol-Version": VERSION}
        await many(target, lambda http: http.post(f"/{PLAIN_SERVER}", json=body, headers=headers), until, 16)

    async def session() -> None:
        asking = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": ABLE}}  # type: ignore[dict-item]
        async with httpx2.AsyncClient(base_url=target.url, headers=target.headers, trust_env=False) as http:
            id = (await http.post(f"/{PLAIN_SERVER}", json=asking)).headers.get("mcp-session-id", "")
            body = jsonrpc.request(2, "tools/call", {"name": "echo", "arguments": {}})
            with contextlib.suppress(httpx2.HTTPError):
                await http.post(
                    f"/{PLAIN_SERVER}", json=body, headers={"Mcp-Session-Id": id}, timeout=max(0.1, until - monotonic())
                )

    with contextlib.suppress(WebSocketException, OSError):
        await asyncio.gather(page(), client(), *(session() for _ in range(8)))
