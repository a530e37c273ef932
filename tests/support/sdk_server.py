"""A server made with the official Python SDK: `python -P official.py stdio`, or `http`, or `sse`.

Over HTTP it takes any free port and prints it.
"""

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("official")
running: set[asyncio.Task[None]] = set()


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user in the middle of the call, as in the handshake era."""
    answer: Any = await ctx.elicit("What is your name?", Name)
    return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else str(answer.action)


@server.tool()
async def chatter(ctx: Context) -> str:
    """Write log messages that belong to no call."""
    session = ctx.session

    async def write_logs() -> None:
        for number in range(1_000):
            await asyncio.sleep(0.02)
            await session.send_log_message("info", number)

    running.add(asyncio.create_task(write_logs()))
    return "chatting"


@server.tool()
async def count(ctx: Context, to: int = 2) -> str:
    """Report progress."""
    for number in range(to):
        await ctx.report_progress(number + 1, to)
    return "done"


@server.resource("text://greeting")
def greeting() -> str:
    """A greeting."""
    return "hello"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
