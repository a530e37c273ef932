"""Relays with upstreams, and real clients for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

MODES = ("legacy", "2026-07-28")


@asynccontextmanager
async def client(relay: RunningRelay, server: str, mode: str, **callbacks: Any) -> AsyncIterator[Client]:
    """The official client, in one era."""
    headers = {"Authorization": f"Bearer {relay.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"{relay.url}/{server}", http_client=http), mode=mode, **callbacks) as one,
    ):
        yield one


def named(name: str) -> dict[str, Any]:
    """A user who answers every question with this name."""

    async def elicit(context: object, params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": name})

    return {"elicitation_callback": elicit}


async def text(one: Client, tool: str, **arguments: Any) -> str:
    result = await one.call_tool(tool, arguments)
    return str(result.content[0].text)  # type: ignore[union-attr]


async def busy(relay: RunningRelay, count: int) -> None:
    """Wait until the relay's only server has this many calls."""
    async with asyncio.timeout(BOUND_S):
        while (await relay.http.get("/-/status")).json()["servers"][0]["in_flight"] != count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
