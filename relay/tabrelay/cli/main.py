"""Entry point of the command line: parses the command, runs it, and prints an error as one line.

Only the module of the given command is imported, and it imports heavy modules when it runs: clients wait for
`tabrelay stdio`. Each command adds its own parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from tabrelay import __version__
from tabrelay.cli import flags
from tabrelay.cli.output import OK, USAGE, ExitWith

# The modules, and the commands in each, in the order of the help.
COMMANDS: Final = {
    "serve": ("demo", "serve"),
    "status": ("status",),
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
}


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
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
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        return OK


def _parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or only of the module that has `wanted`."""
    parser = flags.Parser(
        prog="tabrelay",
        description="A browser tab is an MCP server: the relay between MCP clients and the pages you have open.",
        epilog="Examples:\n"
        "  tabrelay demo                 start the relay and open the demo page\n"
        "  tabrelay serve notes          start the relay for your own page\n"
        "  tabrelay status               show the relay and its servers\n"
        "  tabrelay reconnect files      connect to a server of the configuration again\n"
        "  tabrelay login search -c FILE sign in at a server of the configuration\n"
        "  tabrelay logs -f              show its log\n"
        "  tabrelay stdio notes          connect a client that only speaks stdio\n"
        "  tabrelay acp -- AGENT         give an editor's agent the browser's tools\n"
        "  tabrelay mcp PORT             (agents start it to connect to `tabrelay acp`)\n"
        "  tabrelay tools notes          list a server's tools\n"
        "  tabrelay call demo add -a a=2 -a b=3    call one\n"
        "  tabrelay install cursor notes write a server into a client's configuration\n"
        "  tabrelay uninstall cursor notes         remove it again\n"
        "  tabrelay doctor               check everything, and give advice\n"
        "  tabrelay service install notes          start the relay with the computer\n"
        "  tabrelay completion bash      complete commands with the Tab key\n"
        "  tabrelay token                print the token for MCP clients\n"
        "  tabrelay pair                 print a fresh address that pairs a browser\n"
        "  tabrelay pairs                show which pages ask to be paired, and which are\n"
        "  tabrelay drift                show servers whose tools changed since their first use\n"
        "  tabrelay config check -c FILE check a configuration\n"
        "  tabrelay demo --help          all flags of a command\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tabrelay {__version__}")
    parser.set_defaults(whole=_parser)  # for `completion`, which needs all commands
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    files = [file for file, names in COMMANDS.items() if wanted in names] or COMMANDS
    for file in files:
        import_module(f"tabrelay.cli.{file}").add(commands)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
