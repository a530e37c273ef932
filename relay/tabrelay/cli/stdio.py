"""`tabrelay stdio`: connects a client that uses stdin and stdout to an MCP server over HTTP.

`--check` connects once, prints what the server offers, and ends. It imports the event loop and the bridge only when it
runs: clients wait for this program to start. Message handling is in `tabrelay.bridge`.
"""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.cli import connect, flags, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith

SHOWN_TOOLS = 12


def add(commands: Any) -> None:
    about = "Connect a client that only speaks stdin and stdout to a server of the relay, or to any MCP server by URL."
    parser = flags.add_command(
        commands, "stdio", about, "tabrelay stdio notes\n  tabrelay stdio https://mcp.example.com/mcp --check"
    )
    connect.add_flags(parser, asks=False)
    parser.add_argument(
        "--check", action="store_true", help="try it: connect, list the tools, print the outcome, and end"
    )
    parser.add_argument("--json", action="store_true", help="with --check: print one JSON line")
    parser.add_argument(
        "--no-server-stream", action="store_true", help="do not open the stream for messages that belong to no request"
    )
    parser.add_argument("--serial", action="store_true", help="send a request only when the one before is answered")
    parser.set_defaults(run=_stdio)


def _stdio(args: argparse.Namespace) -> int:
    import asyncio

    if args.json and not args.check:
        raise ExitWith("--json works only with --check: otherwise stdout carries the messages of the server.")
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    outbound, credentials = connect.outbound(args)
    try:
        if args.check:
            return await _check(args, outbound, credentials)
        await _bridge(args, outbound, credentials)
        return OK
    finally:
        await outbound.close()


async def _bridge(args: argparse.Namespace, outbound: Any, credentials: Any) -> None:
    import asyncio
    import sys

    from tabrelay.bridge import stdio
    from tabrelay.bridge.bridge import Bridge

    if sys.stdin.isatty():
        print("Waiting for MCP messages on stdin, one per line. (To try the connection: --check)", file=sys.stderr)
    stdio.use_bytes()
    output = stdio.Stdout()
    bridge = Bridge(
        outbound,
        output,
        prepare=lambda: connect.prepare(credentials),
        has_server_stream=not args.no_server_stream,
        is_serial=args.serial,
    )
    loop = asyncio.get_running_loop()
    for number in connect.stop_signals():
        loop.add_signal_handler(number, bridge.stop)
    try:
        await bridge.run(stdio.Stdin().chunks())
    finally:
        await output.close()


async def _check(args: argparse.Namespace, outbound: Any, credentials: Any) -> int:
    """Connects, lists the tools, and prints the outcome: each line as soon as it is known, or one JSON line."""
    import json
    import time

    from tabrelay.bridge.client import McpClient, RequestFailed
    from tabserver.wire import methods

    show = _row if not args.json else lambda name, text: None
    found: dict[str, Any] = {"target": outbound.where, "ok": False}
    if not args.json:
        print(outbound.where)
    began = time.monotonic()
    try:
        await connect.prepare(credentials)
        async with McpClient(outbound) as client:
            server = await client.negotiate()
            found["connected_ms"] = round((time.monotonic() - began) * 1000)
            found |= {"protocol": server.version, "handshake": not server.is_modern, "server": server.server}
            found["capabilities"] = sorted(server.capabilities)
            _show_server(found, show)
            tools = await client.all(methods.TOOLS_LIST, "tools") if "tools" in server.capabilities else []
    except RequestFailed as error:
        text, help = connect.explained(args, error)
        found |= {"error": text, "help": help}
        show("failed", text)
    else:
        found |= {"ok": True, "tools": [str(tool.get("name")) for tool in tools]}
        names = found["tools"]
        more = f", … and {len(names) - SHOWN_TOOLS} more" if len(names) > SHOWN_TOOLS else ""
        show("tools", f"{len(names)}: {', '.join(names[:SHOWN_TOOLS])}{more}" if names else "none")
    first, *rest = running_relay.program()
    entry = {"command": first, "args": [*rest, "stdio", args.target]}
    if args.json:
        print(json.dumps({**found, "entry": entry} if found["ok"] else found))
    elif found["ok"]:
        print(f"\nIt works. In a client's configuration:\n  {json.dumps(entry)}")
    else:
        print("\nIt does not work.")
        if found["help"]:
            print(f"Help: {running_relay.command()} help {found['help']}")
    return OK if found["ok"] else FAILED


def _show_server(found: dict[str, Any], show: Any) -> None:
    show("connected", f"in {found['connected_ms']} ms")
    show("protocol", found["protocol"] + (", with a handshake" if found["handshake"] else ""))
    name, version = found["server"].get("name", "?"), found["server"].get("version", "")
    show("server", f"{found['server'].get('title') or name} {version}")
    show("offers", ", ".join(found["capabilities"]) or "nothing")


def _row(name: str, text: str) -> None:
    from tabrelay.cli.render import printable

    print(f"  {name:<11}{printable(text)}", flush=True)
