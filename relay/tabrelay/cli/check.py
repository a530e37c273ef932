"""`tabrelay stdio --check`: does it work? Answered on one screen."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from tabrelay.cli import connect
from tabrelay.cli.outcome import FAILED, OK
from tabrelay.cli.render import printable
from tabserver.wire import methods

SHOWN_TOOLS = 12


async def check(args: argparse.Namespace, outbound: Any, credentials: Any) -> int:
    from tabrelay.bridge.client import McpClient, RequestFailed

    print(outbound.where)
    began = time.monotonic()
    try:
        await connect.prepare(credentials)
        async with McpClient(outbound) as client:
            greeting = await client.negotiate()
            _row("connected", f"in {(time.monotonic() - began) * 1000:.0f} ms")
            _row("protocol", greeting.version + ("" if greeting.is_modern else ", with a handshake"))
            name, version = greeting.server.get("name", "?"), greeting.server.get("version", "")
            _row("server", f"{greeting.server.get('title') or name} {version}")
            _row("offers", ", ".join(sorted(greeting.capabilities)) or "nothing")
            tools = await client.all(methods.TOOLS_LIST, "tools") if "tools" in greeting.capabilities else []
    except RequestFailed as error:
        _row("failed", str(error))
        print("\nIt does not work.")
        return FAILED
    names = [str(tool.get("name")) for tool in tools]
    more = f", … and {len(names) - SHOWN_TOOLS} more" if len(names) > SHOWN_TOOLS else ""
    _row("tools", f"{len(names)}: {', '.join(names[:SHOWN_TOOLS])}{more}" if names else "none")
    print("\nIt works. In a client's configuration:")
    print(f"  {json.dumps({'command': 'tabrelay', 'args': ['stdio', args.target]})}")
    return OK


def _row(name: str, text: str) -> None:
    print(f"  {name:<11}{printable(text)}", flush=True)
