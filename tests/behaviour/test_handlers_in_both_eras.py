"""Handlers in both eras: over a real relay, the official client of each era gets the same from the same handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tabserver.handlers.context import Context
from tabserver.handlers.questions import Elicit, InputRequired
from tabserver.handlers.toolbox import Toolbox, prompt, resource, tool
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay

ERAS = pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])


@dataclass
class Name:
    name: str


def offer(box: Toolbox) -> None:
    @tool(toolbox=box)
    async def introduce(ctx: Context) -> Any:
        """Ask for three things at once, then for one more."""
        name, said, roots = await asyncio.gather(
            ctx.elicit("What is your name?", Name), ctx.sample("Greet them"), ctx.roots()
        )
        again = await ctx.elicit("And your other name?", Name)
        return f"{said.text} {name.data.name} {again.data.name} {roots[0].name}"

    @tool(toolbox=box)
    def confirm(ctx: Context) -> Any:
        """The same questions in the other style."""
        question = Elicit("Sure?", Name)
        answer = ctx.answer("sure", question)
        return f"{ctx.request_state} {answer.data.name}" if answer else InputRequired({"sure": question}, state="kept")

    @prompt(toolbox=box)
    async def letter(ctx: Context, to: str) -> str:
        return f"Write to {to} for {(await ctx.elicit('Who writes?', Name)).data.name}."

    @resource("notes://mine", toolbox=box)
    async def mine(ctx: Context) -> str:
        return f"Notes of {(await ctx.elicit('Who are you?', Name)).data.name}"


@asynccontextmanager
async def connected(home: Path, mode: str) -> AsyncIterator[Client]:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Alice"})

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text="Hello"))

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///a", "name": "A"}]})

    box = Toolbox()
    offer(box)
    async with RunningRelay(home) as relay, CPythonWorker(relay.url, relay.token, "asking", box) as worker:
        headers = {"Authorization": f"Bearer {relay.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
            Client(
                streamable_http_client(f"{relay.url}/asking", http_client=http),
                mode=mode,
                elicitation_callback=elicit,
                sampling_callback=sample,
                list_roots_callback=roots,
            ) as client,
        ):
            yield client
        assert worker.errors == []


def text_of(content: Any) -> str:
    assert isinstance(content, types.TextContent)
    return content.text


@ERAS
async def test_what_a_handler_asks_reaches_the_client_of_each_era(tmp_path: Path, mode: str, version: str) -> None:
    async with connected(tmp_path, mode) as client:
        assert client.protocol_version == version
        result = await client.call_tool("introduce", {})
        assert text_of(result.content[0]) == "Hello Alice Alice A"
        assert text_of((await client.call_tool("confirm", {})).content[0]) == "kept Alice"
        assert text_of((await client.get_prompt("letter", {"to": "Bob"})).messages[0].content) == (
            "Write to Bob for Alice."
        )
        read = (await client.read_resource("notes://mine")).contents[0]
        assert isinstance(read, types.TextResourceContents) and read.text == "Notes of Alice"
