"""`tabrelay stdio`: an MCP server over HTTP, for clients that only speak stdin and stdout."""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.verbs import flags, reach
from tabrelay.verbs.outcome import OK


def add(verbs: Any) -> None:
    about = "Connect a client that only speaks stdin and stdout to a server of the relay, or to any MCP server by URL."
    parser = flags.verb(verbs, "stdio", about, "tabrelay stdio notes\n  tabrelay stdio https://mcp.example.com/mcp")
    reach.add_flags(parser)
    parser.add_argument("--no-server-stream", action="store_true", help="do not listen to what the server says unasked")
    parser.add_argument("--serial", action="store_true", help="send a request only when the one before is answered")
    parser.set_defaults(run=_stdio)


def _stdio(args: argparse.Namespace) -> int:
    import asyncio

    outbound, credentials = reach.outbound(args)
    asyncio.run(_run(args, outbound, credentials))
    return OK


async def _run(args: argparse.Namespace, outbound: Any, credentials: Any) -> None:
    import asyncio
    import sys

    from tabrelay.bridge import pipes
    from tabrelay.bridge.bridge import Bridge

    if sys.stdin.isatty():
        print("Waiting for MCP messages on stdin, one per line.", file=sys.stderr)
    await reach.prepare(credentials)
    pipes.use_bytes()
    output = pipes.Stdout()
    bridge = Bridge(outbound, output, has_listener=not args.no_server_stream, is_serial=args.serial)
    loop = asyncio.get_running_loop()
    for number in reach.stop_signals():
        loop.add_signal_handler(number, bridge.stop)
    try:
        await bridge.run(pipes.Stdin().chunks())
    finally:
        await output.close()
        await outbound.close()
