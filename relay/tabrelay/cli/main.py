"""Entry point of the command line: parses the command, runs it, and prints errors.

Only the module of the given command is imported, and it imports heavy modules when it runs: clients wait for
`tabrelay stdio`. Each command adds its own parser.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

from tabrelay import __version__
from tabrelay.cli import flags
from tabrelay.cli.output import CLOSED_PIPE, INTERRUPTED, USAGE, ExitWith, help_line
from tabrelay.system.program import pasteable

# The modules, and the commands in each.
COMMANDS: Final = {
    "serve": ("demo", "serve"),
    "init": ("init",),
    "dev": ("dev",),
    "relays": ("stop", "restart"),
    "packages": ("packages",),
    "status": ("status",),
    "forget": ("forget",),
    "reconnect": ("reconnect",),
    "login": ("login",),
    "logs": ("logs",),
    "stdio": ("stdio",),
    "acp": ("acp",),
    "mcp": ("mcp",),
    "call": ("tools", "call"),
    "install": ("install", "uninstall"),
    "doctor": ("doctor",),
    "service": ("service",),
    "completion": ("completion",),
    "token": ("token",),
    "pairs": ("pair", "pairs"),
    "drift": ("drift",),
    "config": ("config",),
    "help": ("help",),
}
VERBS: Final = frozenset(verb for verbs in COMMANDS.values() for verb in verbs)
# The order of the help.
GROUPS: Final = {
    "Begin": ("init", "dev", "demo"),
    "Start and stop": ("serve", "stop", "restart", "service"),
    "Look": ("status", "doctor", "logs"),
    "Call": ("tools", "call"),
    "Connect clients": ("install", "uninstall", "stdio", "acp", "mcp"),
    "Let pages in": ("pair", "pairs", "token"),
    "Servers": ("config", "reconnect", "login", "forget", "drift", "packages"),
    "This program": ("completion", "help"),
}
EXAMPLES: Final = (
    ("tabrelay demo", "start the relay and open the demo page"),
    ("tabrelay init notes && tabrelay dev notes", "write a page with tools, and serve it"),
    ("tabrelay serve notes", "start the relay for a page of your own"),
    ("tabrelay install cursor notes", "write a server into a client's configuration"),
    ("tabrelay call demo add a=2 b=3", "call a tool"),
    ("tabrelay doctor", "find out what is missing"),
)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has ended. Python flushes again at exit, which must not fail then.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE


def _run(argv: Sequence[str]) -> int:
    parser = _parser(argv[0] if argv else None)
    args = parser.parse_args(argv)
    if "run" not in args:
        # Without a command, print the help.
        parser.print_help(sys.stderr)
        return USAGE
    try:
        code: int = args.run(args)
        return code
    except ExitWith as stop:
        text = f"{stop}\n{help_line(stop.help)}" if stop.help else str(stop)
        print(pasteable(text, VERBS), file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or only of the module that has `wanted`."""
    parser = flags.ProgramParser(
        prog="tabrelay",
        description="A browser tab is an MCP server: the relay between MCP clients and the pages you have open.",
        groups=GROUPS,
        examples=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"tabrelay {__version__}")
    parser.set_defaults(whole=_parser)  # for `completion` and `help`, which need all commands
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=flags.Parser)
    files = [file for file, names in COMMANDS.items() if wanted in names] or COMMANDS
    for file in files:
        import_module(f"tabrelay.cli.{file}").add(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
