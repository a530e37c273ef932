"""`tabrelay drift`: lists servers whose tools changed since their first use, and accepts the changes.

The relay detects the changes (`routing.tool_drift`); this command only shows them.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import OK
from tabrelay.cli.render import printable


def add(commands: Any) -> None:
    about = "Show servers whose tools changed since they were first used; accept the changes."
    parser = flags.add_command(commands, "drift", about, "tabrelay drift accept notes")
    flags.address_flags(parser)
    parser.add_argument("--json", action="store_true", default=None, help="print JSON")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    accept = flags.add_command(actions, "accept", "Accept the tools as they are now.", "tabrelay drift accept notes")
    accept.add_argument("name", metavar="NAME", help="the server")
    flags.address_flags(accept, default=argparse.SUPPRESS)
    accept.set_defaults(run=_accept)


def _list(args: argparse.Namespace) -> int:
    servers = running_relay.request(args, "/-/status")["servers"]
    rows = {row["name"]: row["drift"] for row in servers if row.get("drift")}
    if args.json:
        print(json.dumps(rows))
        return OK
    for name, drift in rows.items():
        print(name)
        for what in ("changed", "added", "removed"):
            if drift[what]:
                print(printable(f"  {what}: {', '.join(drift[what])}"))
    hint = f"\nTo accept the changes: {running_relay.command()} drift accept NAME"
    print(hint if rows else "No tools have changed.")
    return OK


def _accept(args: argparse.Namespace) -> int:
    running_relay.request(args, "/-/drift", "POST", {"accept": args.name}, server=args.name)
    print(f'The tools of "{args.name}" count as known from now on.')
    return OK
