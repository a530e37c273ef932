"""`tabrelay stdio`: an MCP server over HTTP, for clients that only speak stdin and stdout."""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.cli import connect, flags
from tabrelay.cli.outcome import OK


def add(verbs: Any) -> None:
    about = "Connect a client that only speaks stdin and stdout to a server of the relay, or to any MCP server by URL."
    parser = flags.verb(
        verbs, "stdio", about, "tabrelay stdio notes\n  tabrelay stdio https://mcp.example.com/mcp --check"
    )
    connect.add_flags(parser)
    parser.add_argument("--check", action="store_true", help="try it: connect, list the tools, say what works, and end")
    parser.add_argument("--no-server-stream", action="store_true", help="do not listen to what the server says unasked")
    parser.add_argument("--serial", action="store_true", help="send a request only when the one before is answered")
    parser.set_defaults(run=_stdio)


def _stdio(args: argparse.Namespace) -> int:
    import asyncio

    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    outbound, credentials = connect.outbound(args)
    try:
        if args.check:
            from tabrelay.cli.check import check

            return await check(args, outbound, credentials)
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
