"""A server made with the official Python SDK: `python -P official.py stdio`, or `http PORT`, or `sse PORT`."""

import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("official")


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user in the middle of the call, in the way of the handshake era."""
    answer: Any = await ctx.elicit("What is your name?", Name)
    return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else str(answer.action)


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
    elif sys.argv[1] == "sse":
        server.run("sse", port=int(sys.argv[2]))
    else:
        server.run("streamable-http", port=int(sys.argv[2]))
