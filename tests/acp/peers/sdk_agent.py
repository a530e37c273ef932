"""An agent on the official Python SDK. It lists the servers that it was given, and then repeats every prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import acp
from acp import schema


class Echo(acp.Agent):
    def __init__(self) -> None:
        self._servers: list[Any] = []

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **more: Any
    ) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(
        self, cwd: str, additional_directories: Any = None, mcp_servers: Any = None, **more: Any
    ) -> schema.NewSessionResponse:
        self._servers = mcp_servers or []
        return schema.NewSessionResponse(session_id="s1")

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Any = None, additional_directories: Any = None, **more: Any
    ) -> schema.LoadSessionResponse:
        self._servers = mcp_servers or []
        return schema.LoadSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"method": method, "params": params}

    async def prompt(self, session_id: str, prompt: Any, **more: Any) -> schema.PromptResponse:
        kinds = [f"{type(one).__name__}:{one.name}" for one in self._servers]
        for word in [*kinds, *prompt[0].text.split()]:
            await self._client.session_update(session_id=session_id, update=acp.update_agent_message_text(word))
        return schema.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(Echo()))  # type: ignore[abstract]
