"""`tabrelay tools` and `tabrelay call`: list and call the tools of an MCP server from a terminal or a script.

Arguments and the output path are checked before the call, since a tool may do something that can't be repeated. The
client is `bridge.client`; results are formatted in `render`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

from tabrelay.cli import connect, flags, running_relay
from tabrelay.cli.output import FAILED, INTERRUPTED, OK, REFUSED, UNREACHABLE, ExitWith
from tabserver.wire import methods

_ERROR: Final = "tabrelay/error"  # member of a result's `_meta`
_CODE: Final = re.compile(r"TR\d{3}")


def add(commands: Any) -> None:
    tools = flags.add_command(
        commands,
        "tools",
        "List the tools of an MCP server.",
        "tabrelay tools notes --tool add -f json",
    )
    connect.add_flags(tools, asks=True)
    tools.add_argument("--tool", metavar="TOOL", help="only this one")
    _output_flags(tools)
    tools.set_defaults(run=_tools)

    call = flags.add_command(
        commands,
        "call",
        "Call a tool of an MCP server. The tool's schema gives the types of its arguments.",
        "tabrelay call demo add a=2 b=3\n"
        '  tabrelay call demo add --args \'{"a": 2, "b": 3}\'\n'
        "  tabrelay call demo add -a a=2 -a b=3 -o sum.txt",
    )
    call.mixes = True
    call.advice = "Arguments of the tool have no dashes, as in: tabrelay call demo add a=2 b=3"
    connect.add_flags(call, asks=True)
    call.add_argument("tool", metavar="TOOL", help="its name")
    call.add_argument(
        "words", nargs="*", default=[], metavar="NAME=VALUE", help="its arguments; a name of a list may be repeated"
    )
    call.add_argument("--args", metavar="JSON", help="its arguments: a JSON object, @FILE, or - for stdin")
    call.add_argument(
        "-a",
        dest="pairs",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the same, as a flag (may be repeated)",
    )
    _output_flags(call)
    call.set_defaults(run=_call)


def _output_flags(parser: argparse.ArgumentParser) -> None:
    from tabrelay.cli.render import FORMATS

    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="how it is shown (default text)")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as -f json")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the result to this file; images are saved in the same folder"
    )


def _tools(args: argparse.Namespace) -> int:
    from tabrelay.cli import render

    _check_output(args)
    rows = _with_client(args, _list)
    if args.tool is not None:
        rows = [row for row in rows if row.get("name") == args.tool]
        if not rows:
            raise ExitWith(f"The server has no tool {args.tool!r}. See: tabrelay tools {args.target}", REFUSED)
    _show(args, render.tools(rows, args.format))
    if not rows:
        print(f"Is its page open? See: {running_relay.command()} status", file=sys.stderr)
    return OK


def _call(args: argparse.Namespace) -> int:
    from tabrelay.cli import render

    if not args.tool.strip():
        raise ExitWith("The name of the tool is empty.")
    _check_output(args)
    args.arguments = _whole_arguments(args)
    args.pairs = [*args.pairs, *args.words]
    for pair in args.pairs:
        if pair.partition("=")[0] in ("", pair):
            raise ExitWith(
                f"{pair} is not NAME=VALUE.\nThe arguments of the tool: {_tools_command(args)}", help="TR320"
            )
    result = _with_client(args, _run)
    folder = Path(args.output).parent if args.output else Path()
    files = render.OutputFolder(folder, args.tool)
    _show(args, render.result(result, args.format, files))
    for path in files.written:
        _report_file(path)
    if code := _help_of(result):
        print(f"Help: {running_relay.command()} help {code}", file=sys.stderr)
    return FAILED if result.get("isError") is True else OK


def _help_of(result: dict[str, Any]) -> str | None:
    """The code of an error that Tabrelay and not the tool has made."""
    meta = result.get("_meta")
    error = meta.get(_ERROR) if isinstance(meta, dict) else None
    code = error.get("help") if isinstance(error, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


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
            text, help = connect.explained(args, error)
            raise ExitWith(text, UNREACHABLE if error.is_unreachable else REFUSED, help=help) from None
        finally:
            await outbound.close()

    try:
        return asyncio.run(talk())
    except KeyboardInterrupt:
        raise ExitWith("Cancelled.", INTERRUPTED) from None


async def _list(args: argparse.Namespace, client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await client.all(methods.TOOLS_LIST, "tools")
    return found


async def _run(args: argparse.Namespace, client: Any) -> dict[str, Any]:
    import shutil

    from tabrelay.cli import tool_arguments, wait_notice
    from tabrelay.cli.progress import ProgressBar
    from tabrelay.system.tasks import BackgroundTasks

    if args.pairs:
        try:
            args.arguments |= tool_arguments.read(args.pairs, await _schema(args, client))
        except tool_arguments.ArgumentError as problem:
            raise ExitWith(str(problem), help="TR320") from None
    bar, background = ProgressBar(sys.stderr, shutil.get_terminal_size().columns), BackgroundTasks()
    background.start(wait_notice.show(args, client.where))
    try:
        result: dict[str, Any] = await client.call(args.tool, args.arguments, bar.step)
        return result
    finally:
        await background.cancel()
        bar.end()


async def _schema(args: argparse.Namespace, client: Any) -> dict[str, Any] | None:
    """The input schema of the tool; None if the server does not list it."""
    found = [row for row in await _list(args, client) if row.get("name") == args.tool]
    schema = found[0].get("inputSchema") if found else None
    return schema if isinstance(schema, dict) else None


def _tools_command(args: argparse.Namespace) -> str:
    return f"{running_relay.command()} tools {args.target} --tool {args.tool}"


def _whole_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """The JSON object of --args."""
    from tabrelay.cli import tool_arguments

    text = args.args
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text is not None and text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        found = {} if text is None else tool_arguments.parse_json(text)
    except OSError as problem:
        raise ExitWith(f"--args can't be read: {problem}", help="TR320") from None
    except (ValueError, RecursionError) as problem:
        raise ExitWith(f"--args is not JSON: {problem}", help="TR320") from None
    if not isinstance(found, dict):
        raise ExitWith('--args must be a JSON object, such as {"a": 2}', help="TR320")
    return found


def _check_output(args: argparse.Namespace) -> None:
    """Called before the tool: it may do something that can't be done twice."""
    if args.output is None:
        return
    path = Path(args.output)
    if ".." in path.parts:
        raise ExitWith('-o: the path must not contain "..".', help="TR316")
    if path.is_dir() or not path.parent.is_dir():
        raise ExitWith(
            f"-o: {path} can't be written: {'it is' if path.is_dir() else 'there is no'} directory.", help="TR316"
        )


def _show(args: argparse.Namespace, text: str) -> None:
    from tabrelay.cli.render import printable

    if args.output is not None:
        data = text.encode() + b"\n"
        try:
            Path(args.output).write_bytes(data)
        except OSError as problem:
            raise ExitWith(f"-o: {problem}", FAILED, help="TR316") from None
        _report_file(Path(args.output))
    else:
        print(printable(text) if sys.stdout.isatty() else text)


def _report_file(path: Path) -> None:
    size = path.stat().st_size
    print(f"Written: {path.absolute()} ({size} byte{'' if size == 1 else 's'})", file=sys.stderr)
