"""Actions that the conformance suite's client scenarios require, with the official SDK's client over any transport."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult, ErrorData
from pydantic import ValidationError

MODERN = "2026-07-28"
WAIT_S = 300.0


async def drive(transport: Any, scenario: str, version: str, context: dict[str, Any]) -> None:
    mode: Any = MODERN if version == MODERN else "legacy"
    answers: Any = {"elicitation_callback": accept}
    if scenario == "request-metadata":  # checks what is declared
        mode = "auto"
        answers |= {"sampling_callback": refuse, "list_roots_callback": refuse}
    async with asyncio.timeout(WAIT_S), Client(transport, mode=mode, **answers) as client:
        tools = (await client.list_tools()).tools
        calls = context.get("toolCalls") or [
            {"name": tool.name, "arguments": arguments(tool.input_schema, tools[0].input_schema)} for tool in tools
        ]
        for call in calls:
            with contextlib.suppress(MCPError, ValidationError):  # some are meant to fail
                await client.call_tool(call["name"], call.get("arguments", {}))
        if scenario == "http-standard-headers":
            for prompt in (await client.list_prompts()).prompts:
                await client.get_prompt(prompt.name)
            for resource in (await client.list_resources()).resources:
                await client.read_resource(str(resource.uri))


async def accept(_: Any, params: Any) -> Any:
    """Every default of the form."""
    assert isinstance(params, ElicitRequestFormParams)
    properties = params.requested_schema.get("properties", {})
    content = {name: one["default"] for name, one in properties.items() if "default" in one}
    return ElicitResult(action="accept", content=content)


async def refuse(*_: Any) -> Any:
    return ErrorData(code=-32603, message="not here")


def arguments(schema: dict[str, Any], echoed: dict[str, Any]) -> dict[str, Any]:
    """One tool expects the schema of another one, as it arrived here."""
    samples = {"number": 5, "integer": 5, "boolean": True, "object": echoed, "array": []}
    return {name: samples.get(schema["properties"][name].get("type"), "x") for name in schema.get("required", [])}
