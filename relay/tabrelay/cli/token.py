"""`tabrelay token`: prints the token for MCP clients; makes, lists and revokes further tokens with names.

It reads and writes the token file directly, so no running relay is needed; a running relay reads the file again.
Storage and checks are in `tabrelay.admission`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith, ago, table

if TYPE_CHECKING:
    from tabrelay.admission.tokens import Tokens

DAY_S: Final = 86_400.0


def add(commands: Any) -> None:
    parser = flags.add_command(
        commands,
        "token",
        "Print the token for MCP clients. With an action: make, list or revoke more tokens.",
        "claude mcp add --transport http demo http://127.0.0.1:4747/demo \\\n"
        '    --header "Authorization: Bearer $(tabrelay token)"\n'
        "  tabrelay token new laptop --server notes --days 30\n"
        "  tabrelay token revoke laptop",
    )
    flags.home_flag(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON line")
    parser.set_defaults(run=_show)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")

    new = _action(actions, "new", "Make a token and print it, once.", "tabrelay token new laptop --server notes", _new)
    new.add_argument("name", metavar="NAME", help="what to call it: how you find it again, and how the log names it")
    new.add_argument("--server", action="append", metavar="NAME", help="only for this server (may be repeated)")
    new.add_argument(
        "--for",
        dest="scopes",
        action="append",
        choices=("call", "serve", "metrics"),
        help="call: MCP clients (default); serve: pages that offer tools; metrics: programs that read /-/metrics "
        "(may be repeated)",
    )
    new.add_argument("--days", type=float, metavar="N", help="ends by itself after N days (default: never)")
    new.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON line")

    listing = _action(actions, "list", "List the tokens by name, without their values.", "tabrelay token list", _list)
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")

    about = "Revoke a token. A running relay closes its connections."
    revoke = _action(actions, "revoke", about, "tabrelay token revoke laptop", _revoke)
    revoke.add_argument("name", metavar="NAME", help='its name; "default" replaces the relay\'s own token by a new one')


def _action(actions: Any, name: str, about: str, example: str, run: Any) -> argparse.ArgumentParser:
    parser = flags.add_command(actions, name, about, example)
    flags.home_flag(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser


def _show(args: argparse.Namespace) -> int:
    token = running_relay.token(flags.settings(args).home)
    print(json.dumps({"token": token}) if args.json else token)
    return OK


def _new(args: argparse.Namespace) -> int:
    from tabrelay.admission.tokens import StateError, TokenStoreError
    from tabserver.wire.errors import ServerNameError
    from tabserver.wire.names import check_server_name

    if args.days is not None and not args.days > 0:
        raise ExitWith("--days must be more than 0.")
    if args.server and "metrics" in (args.scopes or ()):
        raise ExitWith("The figures of /-/metrics are of all servers: --for metrics can't have a --server.")
    try:
        servers = [check_server_name(name) for name in args.server] if args.server else None
        life_s = args.days * DAY_S if args.days is not None else None
        token = _tokens(args).issue_named(args.name, set(args.scopes or ["call"]), servers, life_s)
    except (TokenStoreError, ServerNameError, StateError) as problem:
        raise ExitWith(str(problem), help="TR315") from None
    if args.json:
        print(json.dumps({"name": args.name, "token": token}))
        return OK
    print(token)
    if sys.stdout.isatty():
        print(f"It is shown this once. To end it: {running_relay.command()} token revoke {args.name}", file=sys.stderr)
    return OK


def _list(args: argparse.Namespace) -> int:
    from tabrelay.admission.tokens import MASTER_NAME

    now = time.time()
    named = [grant for grant in _tokens(args).issued() if grant.name is not None]
    if args.json:
        rows = [
            {
                "name": grant.name,
                "for": list(grant.scopes),
                "servers": None if grant.servers is None else list(grant.servers),
                "created": grant.created,
                "expires": grant.expires,
            }
            for grant in named
        ]
        print(json.dumps(rows))
        return OK
    lines = [[MASTER_NAME, "everything", "all", "", ""]]
    for grant in named:
        ends = (
            "never" if grant.expires is None else "over" if grant.is_expired(now) else f"in {ago(grant.expires - now)}"
        )
        servers = "all" if grant.servers is None else ", ".join(grant.servers)
        lines.append([grant.name or "", ", ".join(grant.scopes), servers, f"{ago(now - grant.created)} ago", ends])
    print(table(["NAME", "FOR", "SERVERS", "MADE", "ENDS"], lines))
    return OK


def _revoke(args: argparse.Namespace) -> int:
    from tabrelay.admission.tokens import MASTER_NAME, StateError

    tokens = _tokens(args)
    try:
        if args.name == MASTER_NAME:
            tokens.renew_master()
            program = running_relay.command()
            print(f"The relay has a new token. Clients and scripts with the old one need it: {program} token")
            return OK
        if not tokens.revoke(lambda grant: grant.name == args.name):
            raise ExitWith(f"There is no token {args.name!r}. To see them: tabrelay token list", FAILED, help="TR315")
    except StateError as problem:
        raise ExitWith(str(problem), help="TR315") from None
    print(f"Revoked: {args.name}")
    return OK


def _tokens(args: argparse.Namespace) -> Tokens:
    from tabrelay.admission.tokens import Tokens

    return Tokens(flags.settings(args).home)
