"""One of every feature that Python can offer. The same file runs in the worker and in a page: see tests/e2e."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tabserver import (
    Audio,
    Context,
    Elicit,
    Embedded,
    Image,
    InputRequired,
    MissingCapability,
    ResourceNotFound,
    ToolError,
    default_toolbox,
    prompt,
    resource,
    resource_updated,
    tool,
)


@dataclass
class Name:
    name: str


@dataclass
class Count:
    words: int
    unique: bool


@tool(read_only=True)
def count(text: str, unique: bool = False) -> Count:
    """Count the words of a text."""
    words = text.split()
    return Count(len(set(words) if unique else words), unique)


@tool
def bounded(number: Annotated[int, "how many", {"minimum": 1}]) -> int:
    """Takes numbers from one on."""
    return number


@tool
async def interview(ctx: Context) -> str:
    """Asks every kind of question."""
    answer = await ctx.elicit("Your name?", Name)
    said = await ctx.sample(f"Hello {answer.data.name}", max_tokens=50)
    [root] = await ctx.roots()
    return " | ".join([answer.action, said.text, said.model, root.uri, str(ctx.can("sampling"))])


@tool
async def modest(ctx: Context, cope: bool = False) -> str:
    """Asks, and handles a missing answer."""
    try:
        await ctx.elicit("Your name?", Name)
    except MissingCapability as error:
        if not cope:
            raise
        return str(error)
    return "asked"


@tool
def patient(ctx: Context) -> Any:
    """Returns its question instead of waiting."""
    question = Elicit("Your name?", Name)
    answer = ctx.answer("who", question)
    if answer is None:
        return InputRequired({"who": question}, {"step": 1})
    return f"{answer.data.name} {ctx.request_state['step']}"


@tool
async def wait(ctx: Context) -> str:
    """Reports progress and a log line, then waits until it is cancelled."""
    ctx.progress(1, 2, "half")
    ctx.warning({"waiting": True}, logger="showcase")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ctx.state["cancelled"] = True
        raise
    return "never"


@tool
def remember(ctx: Context) -> dict[str, Any]:
    """Counts the calls of each caller, and returns the caller."""
    ctx.state["calls"] = ctx.state.get("calls", 0) + 1
    client = ctx.caller.client or {}
    return {**ctx.state, "era": ctx.era.value, "client": client.get("name"), "principal": ctx.caller.principal}


@tool
def draw() -> list[Any]:
    """A picture, a sound and a file."""
    return ["Here:", Image(b"\x89PNG"), Audio(b"RIFF"), Embedded("file:///a.txt", "text")]


@tool
def explode(how: Literal["kindly", "badly"]) -> None:
    """Fails."""
    raise ToolError("out of ink") if how == "kindly" else ValueError("the fuse was lit")


@resource("show://today", mime_type="text/markdown")
def today() -> str:
    """Today's note."""
    return "# Buy milk"


async def names(typed: str) -> list[str]:
    return [name for name in ("alpha", "beta") if name.startswith(typed)]


@resource("show://notes/{name}", complete={"name": names})
async def note(name: str) -> bytes:
    """Any note."""
    if name == "missing":
        raise ResourceNotFound(f"show://notes/{name}")
    return name.encode()


@prompt
def review(code: str, tone: Literal["kind", "strict"] = "kind") -> list[str]:
    """Review a piece of code."""
    return [f"Be {tone}.", code]


@tool
def announce() -> None:
    """Notifies that today's note has changed, and offers one more tool."""
    resource_updated("show://today")

    @tool
    def brief() -> str:
        """Withdraws itself."""
        default_toolbox.remove("brief")
        return "gone"
