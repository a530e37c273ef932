"""`tabrelay tools` and `tabrelay call`: list and call the tools of an MCP server from a terminal or a script.

Arguments and the output path are checked before the call, since a tool may do something that can't be repeated. The
client is `bridge.client`; results are formatted in `render`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from tabrelay.cli import connect, flags
from tabrelay.cli.output import FAILED, OK, ExitWith
from tabserver.wire import methods

UNREACHABLE: Final = 3
ERROR: Final = 4
CANCELLED: Final = 130  # the exit code that shells use for a program that Ctrl+C ended
CODES: Final = (
    "exit codes: 0 done; 1 the tool reports an error; 2 the command is wrong; 3 the server can't be reached; "
    "4 the server answers with an error"
)


def add(commands: Any) -> None:
    tools = flags.add_command(
        commands,
        "tools",
        "List the tools of an MCP server.",
        "tabrelay tools notes --tool add -f json",
    )
    connect.add_flags(tools)
    tools.add_argument("--tool", metavar="TOOL", help="only this one")
    _output_flags(tools)
    tools.set_defaults(run=_tools)

    call = flags.add_command(
        commands,
        "call",
        f"Call a tool of an MCP server. {CODES[0].upper()}{CODES[1:]}.",
        'tabrelay call demo add --args \'{"a": 2, "b": 3}\'\n  tabrelay call demo add -a a=2 -a b=3 -o sum.txt',
    )
    connect.add_flags(call)
    call.add_argument("tool", metavar="TOOL", help="its name")
    call.add_argument("--args", metavar="JSON", help="its arguments: a JSON object, @FILE, or - for stdin")
    call.add_argument(
        "-a", dest="pairs", action="append", default=[], metavar="NAME=VALUE", help="one argument (may be repeated)"
    )
    _output_flags(call)
    call.set_defaults(run=_call)


def _output_flags(parser: argparse.ArgumentParser) -> None:
    from tabrelay.cli.render import FORMATS

    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="how it is shown (default text)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there; pictures go beside it")


def _tools(args: argparse.Namespace) -> int:
    from tabrelay.cli import render

    _check_output(args)
    rows = _with_client(args, _list)
    if args.tool is not None:
        rows = [row for row in rows if row.get("name") == args.tool]
        if not rows:
            raise ExitWith(f"The server has no tool {args.tool!r}. See: tabrelay tools {args.target}", ERROR)
    _show(args, render.tools(rows, args.format))
    return OK


def _call(args: argparse.Namespace) -> int:
    from tabrelay.cli import render

    if not args.tool.strip():
        raise ExitWith("Which tool? Its name is empty.")
    _check_output(args)
    args.arguments = _arguments(args)
    result = _with_client(args, _run)
    folder = Path(args.output).parent if args.output else Path()
    _show(args, render.result(result, args.format, render.OutputFolder(folder, args.tool)))
    return FAILED if result.get("isError") is True else OK


def _with_client(args: argparse.Namespace, work: Any) -> Any:
    """Connects, runs `work` with the client, and disconnects."""
    import asyncio

    from tabrelay.bridge.client import McpClient, RequestFailed

    async def talk() -> Any:
        outbound, credentials = connect.outbound(args)
        from tabrelay.cli.elicitation import ask

        try:
            await connect.prepare(credentials)
            async with McpClient(outbound, answer=ask if sys.stdin.isatty() else None) as client:
                await client.negotiate()
                return await work(args, client)
        except RequestFailed as error:
            raise ExitWith(str(error), UNREACHABLE if error.is_unreachable else ERROR) from None
        finally:
            await outbound.close()

    try:
        return asyncio.run(talk())
    except KeyboardInterrupt:
        raise ExitWith("Cancelled.", CANCELLED) from None


async def _list(args: argparse.Namespace, client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await client.all(methods.TOOLS_LIST, "tools")
    return found


async def _run(args: argparse.Namespace, client: Any) -> dict[str, Any]:
    import shutil

    from tabrelay.cli.progress import ProgressBar

    bar = ProgressBar(sys.stderr, shutil.get_terminal_size().columns)
    try:
        result: dict[str, Any] = await client.call(args.tool, args.arguments, bar.step)
        return result
    finally:
        bar.end()


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    import json

    text = args.args
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text is not None and text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        found = {} if text is None else json.loads(text)
    except OSError as problem:
        raise ExitWith(f"--args can't be read: {problem}") from None
    except ValueError as problem:
        raise ExitWith(f"--args is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise ExitWith('--args has to be a JSON object, such as {"a": 2}')
    for pair in args.pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ExitWith(f"-a {pair} is not NAME=VALUE.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # a string needs no quotes
    return found


def _check_output(args: argparse.Namespace) -> None:
    """Called before the tool: it may do something that can't be done twice."""
    if args.output is None:
        return
    path = Path(args.output)
    if ".." in path.parts:
        raise ExitWith("-o: a path without .. please.")
    if path.is_dir() or not path.parent.is_dir():
        raise ExitWith(f"-o: {path} can't be written: {'it is' if path.is_dir() else 'there is no'} directory.")


def _show(args: argparse.Namespace, text: str) -> None:
    from tabrelay.cli.render import printable

    if args.output is not None:
        data = text.encode() + b"\n"
        try:
            Path(args.output).write_bytes(data)
        except OSError as problem:
            raise ExitWith(f"-o: {problem}", FAILED) from None
        print(f"Output written to {args.output} ({len(data)} bytes)", file=sys.stderr)
    else:
        print(printable(text) if sys.stdout.isatty() else text)
