"""Flags that several commands share, and the settings made from them.

Each flag's name is a setting's name. The default None means "not given", so that the environment variable counts.
Flags of one command are in that command's module.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tabrelay.cli.output import ExitWith
from tabrelay.cli.parsers import Parser as Parser
from tabrelay.cli.parsers import ProgramParser as ProgramParser
from tabrelay.cli.parsers import add_command as add_command
from tabrelay.cli.parsers import choices_of as choices_of

if TYPE_CHECKING:
    from tabrelay.config.settings import Settings

READY_LINE: Final = "when ready, print one JSON line with url, mcp_url and token, and open no browser"


def home_flag(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """`default`: argparse.SUPPRESS for an action of a command that has the flag, which may then precede the action."""
    about = "state directory (default: the user's config directory)"
    parser.add_argument("--home", type=Path, metavar="DIR", help=about, default=default)


def address_flags(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Flags that select the running relay. `default`: argparse.SUPPRESS for an action of a command that has them."""
    about = "where the relay listens (default: the relay that runs and has the server, else 127.0.0.1)"
    parser.add_argument("--host", help=about, default=default)
    about = "its port (default: of that relay, else 4747)"
    parser.add_argument("-p", "--port", type=int, help=about, default=default)
    home_flag(parser, default)


def config_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        help="configuration: a TOML file of tabrelay, or a file of Claude, Cursor, VS Code, Codex, … (may be repeated)",
    )


def relay_flags(parser: argparse.ArgumentParser, json_help: str = READY_LINE) -> None:
    """Flags of the commands that start a relay. Their order is the order in --help."""
    _address_and_output_flags(parser, json_help)
    parser.add_argument(
        "--instances",
        action="append",
        metavar="NAME",
        help="keep all browsers with this server connected, not only the newest: /NAME is the one used last, "
        "/NAME~INSTANCE a specific one (may be repeated)",
    )
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="the public address of this relay behind a proxy, e.g. https://relay.example",
    )
    parser.add_argument(
        "--trusted-proxy",
        dest="trusted_proxies",
        action="append",
        metavar="ADDRESS",
        help="address of a proxy whose headers X-Forwarded-For and X-Forwarded-Proto are used (may be repeated)",
    )
    parser.add_argument(
        "--oauth-issuer",
        metavar="URL",
        help="an authorization server whose access tokens are also accepted; needs --public-url",
    )
    parser.add_argument(
        "--static-tools",
        action="append",
        metavar="NAME",
        help="give this server tabs_list, tools_list, tool_call and tab_pin, for clients that read the tool list only "
        "when they start (may be repeated)",
    )
    parser.add_argument(
        "--approve",
        metavar="WHICH",
        help="tools that ask the user in the browser before they run: page (default: the page decides; without a "
        "choice, tools marked destructive), destructive, all, or none",
    )
    _log_flags(parser)
    parser.add_argument(
        "--dangerously-no-auth",
        dest="no_auth",
        action="store_true",
        default=None,
        help="ask for no token: every program on this computer may call; only on a loopback address",
    )


def _address_and_output_flags(parser: argparse.ArgumentParser, json_help: str) -> None:
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("-p", "--port", type=int, help="port to listen on (default 4747; 0: any free one)")
    parser.add_argument("--no-open", dest="open_browser", action="store_false", default=None, help="open no browser")
    parser.add_argument(
        "--json",
        action="store_true",
        default=None,
        help=json_help,
    )
    parser.add_argument(
        "--allow-host",
        dest="allow_hosts",
        action="append",
        metavar="HOST[:PORT]",
        help="an additional host name of this relay (may be repeated)",
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
        "--log-file", metavar="FILE", help="write the log to this file; none: write no log (see `tabrelay logs`)"
    )
    parser.add_argument(
        "--call-log",
        metavar="FILE",
        help="write the call log to this file; none: write no call log (see `tabrelay logs --calls`)",
    )
    parser.add_argument(
        "--call-log-arguments", action="store_true", default=None, help="log the arguments of calls too"
    )
    parser.add_argument(
        "--inspect",
        action="store_true",
        default=None,
        help="capture calls for the console from the start, not only while one is open; in memory, without secrets",
    )
    parser.add_argument(
        "--faults",
        action="store_true",
        default=None,
        help="let the console cut links and delay their messages, for tests; only on a loopback address",
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
        raise ExitWith(str(problem), help="TR309") from None
