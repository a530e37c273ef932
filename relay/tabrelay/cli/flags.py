"""Argument parsers of commands, flags that several commands share, and the settings made from them.

Each flag's name is a setting's name. The default None means "not given", so that the environment variable counts.
Flags of one command are in that command's module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tabrelay.cli.output import ExitWith

if TYPE_CHECKING:
    from tabrelay.config.settings import Settings


class Parser(argparse.ArgumentParser):
    """With `mixes`, flags may be between optional arguments; argparse alone would treat these as omitted.

    An unknown flag is reported with the command's usage, and with a similar flag if there is one. So is a misspelt flag
    when an argument is missing too; argparse alone would report only the argument.
    """

    mixes = False
    advice = ""  # for flags that the command does not know
    _is_inside = False
    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_inside:  # parse_known_intermixed_args calls this again, with a part of the arguments
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        self._given = sys.argv[1:] if args is None else args
        try:
            read = self.parse_known_intermixed_args if self.mixes else super().parse_known_args
            found, unknown = read(args, namespace)
        finally:
            self._is_inside = False
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Adds suggestions to argparse's errors."""
        if misspelt := self._misspelt():
            self._given = ()
            self._refuse(misspelt)
        for action in self._actions:
            if "invalid choice" in message and action.choices is not None and action.option_strings == []:
                message += self._meant(self._given, list(action.choices))
        if message.startswith("the following arguments are required") and self.epilog:
            message += f"\n{self.epilog.rstrip()}"
        super().error(message)

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        flags = [text.partition("=")[0] for text in unknown if text.startswith("--")]
        meant = self._meant(flags, [name for name in self._option_string_actions if name.startswith("--")])
        advice = self.advice or f"All flags: {self.prog} --help"
        super().error(f"unrecognized arguments: {' '.join(unknown)}{meant or chr(10) + advice}")

    def _misspelt(self) -> list[str]:
        """Unknown flags. With subcommands, only those before the subcommand: it parses the rest."""
        own = self._given
        if any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            own = list(takewhile(lambda text: text.startswith("-"), own))
        flags = [text.partition("=")[0] for text in takewhile(lambda text: text != "--", own) if text.startswith("--")]
        known = self._option_string_actions  # argparse accepts unique prefixes
        return [flag for flag in flags if not any(name.startswith(flag) for name in known)]

    @staticmethod
    def _meant(given: Sequence[str], known: Sequence[str]) -> str:
        from difflib import get_close_matches

        close = [match for text in given for match in get_close_matches(text, known, 1, 0.7) if text not in known]
        return f"\nDid you mean {' and '.join(close)}?" if close else ""


def add_command(commands: Any, name: str, about: str, example: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"Example:\n  {example}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def home_flag(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """`default`: argparse.SUPPRESS for an action of a command that has the flag, which may then precede the action."""
    about = "state directory (default: the user's config directory)"
    parser.add_argument("--home", type=Path, metavar="DIR", help=about, default=default)


def address_flags(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Flags that select the running relay. `default`: argparse.SUPPRESS for an action of a command that has them."""
    about = "where the relay listens (default: the relay started last, else 127.0.0.1)"
    parser.add_argument("--host", help=about, default=default)
    about = "its port (default: of the relay started last, else 4747)"
    parser.add_argument("--port", type=int, help=about, default=default)
    home_flag(parser, default)


def config_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        help="configuration: a TOML file of tabrelay, or a file of Claude, Cursor, VS Code, Codex, … (may be repeated)",
    )


def relay_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the commands that start a relay. Their order is the order in --help."""
    _address_and_output_flags(parser)
    parser.add_argument(
        "--instances",
        action="append",
        metavar="NAME",
        help="keep every browser that offers this server: /NAME is the one used last, /NAME~INSTANCE a certain one; "
        "otherwise the newest takes over (may be repeated)",
    )
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="the address under which a proxy makes this relay known, e.g. https://relay.example",
    )
    parser.add_argument(
        "--trusted-proxy",
        dest="trusted_proxies",
        action="append",
        metavar="ADDRESS",
        help="a proxy whose X-Forwarded-For and X-Forwarded-Proto count (may be repeated)",
    )
    parser.add_argument(
        "--oauth-issuer",
        metavar="URL",
        help="an authorization server whose access tokens are taken too; needs --public-url",
    )
    parser.add_argument(
        "--static-tools",
        action="append",
        metavar="NAME",
        help="give this server tabs_list, tools_list, tool_call and tab_pin, for clients that read the tool list once, "
        "at their start, and so would miss what pages offer later (may be repeated)",
    )
    parser.add_argument(
        "--approve",
        metavar="WHICH",
        help="tools that ask the user in the browser before they run: page (default: as the page says, which is those "
        "marked destructive if it says nothing), destructive, all, or none",
    )
    _log_flags(parser)
    parser.add_argument(
        "--dangerously-no-auth",
        dest="no_auth",
        action="store_true",
        default=None,
        help="ask for no token: every program on this computer may call; only on a loopback address",
    )


def _address_and_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 4747; 0: any free one)")
    parser.add_argument("--no-open", dest="open_browser", action="store_false", default=None, help="open no browser")
    parser.add_argument(
        "--json",
        action="store_true",
        default=None,
        help="when ready, print one JSON line with url, mcp_url and token, and open no browser",
    )
    parser.add_argument(
        "--allow-host",
        dest="allow_hosts",
        action="append",
        metavar="HOST[:PORT]",
        help="another name under which this relay is reached (may be repeated)",
    )
    parser.add_argument(
        "--allow-origin",
        dest="allow_origins",
        action="append",
        metavar="ORIGIN",
        help="another origin whose pages may use this relay (may be repeated)",
    )


def _log_flags(parser: argparse.ArgumentParser) -> None:
    home_flag(parser)
    parser.add_argument(
        "--log-level", metavar="LEVEL", help="trace, debug, info, warning (default) or error; to stderr"
    )
    parser.add_argument("--log-format", metavar="FORMAT", help="text (default) or json: one object a line")
    parser.add_argument(
        "--log-file", metavar="FILE", help="write the log there; none: write none (see `tabrelay logs`)"
    )
    parser.add_argument(
        "--call-log", metavar="FILE", help="write the call log there; none: write none (see `tabrelay logs --calls`)"
    )
    parser.add_argument(
        "--call-log-arguments", action="store_true", default=None, help="log the arguments of calls too"
    )
    parser.add_argument(
        "--traces",
        action="store_true",
        default=None,
        help="send traces to an OpenTelemetry collector; OTEL_EXPORTER_OTLP_ENDPOINT and other variables configure it",
    )


def settings(args: argparse.Namespace, **fixed: Any) -> Settings:
    from tabrelay.config.settings import ConfigError, Settings

    try:
        return Settings.from_args({**vars(args), **fixed})
    except ConfigError as problem:
        raise ExitWith(str(problem)) from None
