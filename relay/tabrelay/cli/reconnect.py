"""`tabrelay reconnect`: makes the running relay connect to an upstream again.

Also for an upstream that the relay has given up. The relay does the work; this command only sends the request.
"""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import OK


def add(commands: Any) -> None:
    about = "Connect the running relay to a server of its configuration again, even if the relay has stopped trying."
    parser = flags.add_command(commands, "reconnect", about, "tabrelay reconnect files")
    parser.add_argument("server", metavar="NAME", help="the server's name")
    flags.address_flags(parser)
    parser.set_defaults(run=_reconnect)


def _reconnect(args: argparse.Namespace) -> int:
    from urllib.parse import quote

    running_relay.request(
        args, f"/-/upstreams/{quote(args.server, safe='')}/reconnect", method="POST", server=args.server
    )
    print(f"The relay connects to {args.server} again. To see the result: {running_relay.command()} status")
    return OK
