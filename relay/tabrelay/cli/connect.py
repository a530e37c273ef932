"""Flags for the connection to an MCP server, and the HTTP client made from them.

Shared by the commands that are clients: `stdio`, `tools`, `call`; so is the text of a request that failed.
Flags for tokens and OAuth are in `sign_in`.
"""

from __future__ import annotations

import argparse
import re
import signal
from typing import TYPE_CHECKING, Any, Final

from tabrelay.cli import flags, relay_choice, running_relay, sign_in
from tabrelay.cli.output import USAGE, ExitWith

if TYPE_CHECKING:
    from tabrelay.bridge.client import RequestFailed

VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(|B|K|KB|KIB|M|MB|MIB|G|GB|GIB)", re.IGNORECASE)
UNITS: Final = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*:\s*(.*)", re.DOTALL)


def add_flags(parser: argparse.ArgumentParser, *, asks: bool) -> None:
    """`asks`: the user is asked which relay is meant if several have the server. A program at stdin can't be asked."""
    parser.set_defaults(asks=asks)
    parser.add_argument(
        "target", metavar="URL|NAME", help="the URL of a server, or the name of a server of the local relay"
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="K:V",
        help="send this header (may be repeated); ${NAME} in it is taken from the environment",
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="the longest wait for an answer (default 300)"
    )
    parser.add_argument(
        "--max-buffer", type=size, default=8 << 20, metavar="SIZE", help="the largest event of a stream (default 8MiB)"
    )
    parser.add_argument(
        "--allow-insecure-http",
        action="store_true",
        help="allow http:// to another computer, without encryption",
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="log level on stderr (default warning)")
    flags.address_flags(parser)
    sign_in.add_flags(parser)


def size(text: str) -> int:
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8MiB")
    return int(float(found[1]) * UNITS[found[2][:1].upper()])


def headers(given: list[str], env: Any) -> dict[str, str]:
    """The user's headers by lower-case name, with environment variables expanded."""
    found: dict[str, str] = {}
    for text in given:
        match = HEADER.fullmatch(text.strip())
        if match is None or not match[2]:
            raise ExitWith(
                f"--header {text.partition(':')[0]!r} has no value. It is written NAME:VALUE; where a client splits "
                "arguments at blanks, put the value into the environment: --header Authorization:${AUTH}"
            )
        found[match[1].lower()] = _expand(match[2], env)
    return found


def _expand(text: str, env: Any) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in env:
            raise ExitWith(f"The environment has no variable {match[1]}, which --header needs.")
        return str(env[match[1]])

    expanded = VARIABLE.sub(value, text)
    if not expanded.isprintable():
        raise ExitWith("The value of a header must be one line of printable characters.")
    return expanded


def stop_signals() -> tuple[signal.Signals, ...]:
    """Empty on Windows, whose event loops have no signal handlers: there Ctrl+C raises KeyboardInterrupt."""
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()


def outbound(args: argparse.Namespace) -> tuple[Any, Any]:
    """The HTTP client for the server that the flags name, and its credentials."""
    import os

    from tabrelay.bridge.credentials import CredentialsError
    from tabrelay.bridge.http import HttpEndpoint
    from tabrelay.bridge.outbound import Outbound, OutboundLimits
    from tabrelay.bridge.target import TargetError
    from tabrelay.observe import log_setup

    settings = flags.settings(args)
    log_setup.configure(settings.log_level)
    given = headers(args.header, os.environ)
    if not args.timeout > 0:
        raise ExitWith("--timeout must be more than 0 seconds.")
    is_local = relay_choice.is_local(settings.home, args.target)
    try:
        target = _target(args, settings, is_local)
        credentials = sign_in.credentials(
            args, settings.home, given.pop("authorization", None), os.environ, is_local=is_local
        )
    except (TargetError, CredentialsError) as problem:
        raise ExitWith(str(problem)) from None
    for value in given.values():
        log_setup.add_secret(value)
    limits = OutboundLimits(timeout_ms=round(args.timeout * 1000), max_event=args.max_buffer)
    return Outbound(HttpEndpoint(target), credentials, given, limits), credentials


async def prepare(credentials: Any) -> None:
    from tabrelay.bridge.credentials import CredentialsError

    try:
        await credentials.prepare()
    except CredentialsError as problem:
        raise ExitWith(str(problem), USAGE, help="TR314") from None


def explained(args: argparse.Namespace, error: RequestFailed) -> tuple[str, str | None]:
    """The text of a failed request and the code of its entry, with what the records of running relays add to it."""
    from tabrelay.bridge.errors import GONE
    from tabrelay.bridge.target import is_url
    from tabserver.wire.help_codes import BY_REASON

    text = str(error)
    if not is_url(args.target):
        settings = flags.settings(args)
        records = relay_choice.candidates(args, settings)
        if error.help == GONE and not records:
            base = running_relay.base_url(settings.host, settings.port)
            none = running_relay.no_relay(base, args.target)
            return str(none), none.help
        if error.help == BY_REASON["unknown_server"]:
            text = f"{text}\n{relay_choice.similar(records, args.target)}".rstrip()
    return text, error.help


def _target(args: argparse.Namespace, settings: Any, is_local: bool) -> Any:
    from tabrelay.bridge.target import NameTarget, UrlTarget, is_url

    if is_url(args.target):
        return UrlTarget(args.target, args.allow_insecure_http, is_relay=is_local)
    command = running_relay.command()
    fixed = running_relay.base_url(settings.host, settings.port)
    if args.asks:
        chosen = relay_choice.base(args, settings, args.target)
        return NameTarget(args.target, lambda: chosen, command)
    if args.host is not None or args.port is not None:
        return NameTarget(args.target, lambda: fixed, command)

    def several(found: Any) -> None:
        relay_choice.print_used(found, f'have "{args.target}"')

    return NameTarget(args.target, relay_choice.RelayFinder(settings.home, args.target, fixed, several), command)
