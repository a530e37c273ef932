"""`tabrelay token`: the token that MCP clients send."""

from __future__ import annotations

import argparse
from typing import Any

from tabrelay.verbs import flags, running
from tabrelay.verbs.outcome import OK


def add(verbs: Any) -> None:
    parser = flags.verb(
        verbs,
        "token",
        "Print the token that MCP clients send, and nothing else.",
        "claude mcp add --transport http demo http://127.0.0.1:4747/demo \\\n"
        '    --header "Authorization: Bearer $(tabrelay token)"',
    )
    flags.home_flag(parser)
    parser.set_defaults(run=_token)


def _token(args: argparse.Namespace) -> int:
    print(running.token(flags.settings(args).home))
    return OK
