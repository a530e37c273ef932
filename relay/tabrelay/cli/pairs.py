"""`tabrelay pair` and `tabrelay pairs`: pair browsers and pages of other origins with the relay, list and revoke them.

`pair` prints a URL with a fresh pairing code. `pairs` lists the pages that request pairing and those that are paired;
approving and refusing go to the running relay, revoking writes the token file, which the relay reads again.
Codes and tokens are made in `tabrelay.admission`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from tabrelay.cli import flags, relay_choice, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith, ago, table
from tabrelay.http.addresses import loopback_siblings

if TYPE_CHECKING:
    from tabrelay.admission.tokens import Tokens


def add(commands: Any) -> None:
    about = "Print a link that pairs a browser with the running relay."
    pair = flags.add_command(commands, "pair", about, "tabrelay pair --port 9000")
    flags.address_flags(pair)
    pair.add_argument("--json", action="store_true", default=None, help="print one JSON line")
    pair.set_defaults(run=_pair)

    about = "Show which pages ask to be paired and which are; approve, refuse and revoke."
    parser = flags.add_command(commands, "pairs", about, "tabrelay pairs approve K7QF-2M9D")
    flags.address_flags(parser)
    parser.add_argument("--json", action="store_true", default=None, help="print JSON")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")

    listing = _action(actions, "list", "Show which pages ask and which are paired.", "tabrelay pairs list", _list)
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    about = "Let a page offer tools: it must show the same code."
    approve = _action(actions, "approve", about, "tabrelay pairs approve K7QF-2M9D", _approve)
    approve.add_argument("code", metavar="CODE", help="the code that the page shows, whether it is in the list or not")
    about = "Refuse a page's request. Further requests of its origin are not shown for ten minutes."
    refuse = _action(actions, "refuse", about, "tabrelay pairs refuse K7QF-2M9D", _refuse)
    refuse.add_argument("code", metavar="CODE", help="the code in the list")
    about = "Revoke a pairing. Its pages are disconnected at once."
    revoke = _action(actions, "revoke", about, "tabrelay pairs revoke https://app.example", _revoke)
    revoke.add_argument("which", metavar="ID|ORIGIN", help="an id of the list, or an origin: all of its pairings")


def _action(actions: Any, name: str, about: str, example: str, run: Any) -> argparse.ArgumentParser:
    parser = flags.add_command(actions, name, about, example)
    flags.address_flags(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run)
    return parser


def _pair(args: argparse.Namespace) -> int:
    answer = running_relay.request(args, "/-/codes", method="POST")
    if args.json:
        print(json.dumps(answer))
    else:
        print(f"{answer['url']}\nOpen it in the browser within {answer['expires_s'] // 60} minutes; it works once.")
    return OK


def _list(args: argparse.Namespace) -> int:
    asking = [{**each, "relay": base} for base in _relays(args) for each in _asking(args, base)]
    paired = [grant for grant in _tokens(args).issued() if grant.origin is not None]
    if args.json:
        rows = [
            {"id": grant.id, "origin": grant.origin, "servers": grant.servers, "created": grant.created}
            for grant in paired
        ]
        print(json.dumps({"asking": asking, "paired": rows}))
        return OK
    now = time.time()
    if asking:
        lines = [[each["code"], each["origin"], each["server"], f"{ago(each['since_s'])} ago"] for each in asking]
        print(table(["CODE", "ASKS", "TO OFFER", "SINCE"], lines))
        program = running_relay.command()
        print(f"\nTo decide: {program} pairs approve CODE, {program} pairs refuse CODE\n")
    if not paired:
        print("No page is paired.")
        return OK
    lines = [[grant.id, grant.origin or "", _names(grant), ago(now - grant.created)] for grant in paired]
    print(table(["ID", "PAIRED", "MAY OFFER", "FOR"], lines))
    return OK


def _approve(args: argparse.Namespace) -> int:
    done = _decide(args, "approve")
    back = f"{running_relay.command()} pairs revoke {done['origin']}"
    print(f'{done["origin"]} may offer tools as "{done["server"]}" now. To take it back: {back}')
    if also := ", ".join(sorted(loopback_siblings(done["origin"]))):
        print(f"This covers the other names of the same port: {also}")
    return OK


def _refuse(args: argparse.Namespace) -> int:
    done = _decide(args, "refuse")
    print(f"Refused: {done['origin']}")
    return OK


def _decide(args: argparse.Namespace, what: str) -> Any:
    """Approve or refuse at the relay that has the request."""
    settings = flags.settings(args)
    bases = _relays(args)
    for base in bases if len(bases) > 1 else ():
        if any(each["code"].casefold() == args.code.casefold() for each in _asking(args, base)):
            return running_relay.request_at(base, settings.home, "/-/pairs", "POST", {what: args.code})
    return running_relay.request(args, "/-/pairs", "POST", {what: args.code})


def _relays(args: argparse.Namespace) -> list[str]:
    """The URLs of the relays that may have requests."""
    settings = flags.settings(args)
    found = [record.url for record in relay_choice.candidates(args, settings)]
    return found or [running_relay.base_url(settings.host, settings.port)]


def _asking(args: argparse.Namespace, base: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = running_relay.request_at(base, flags.settings(args).home, "/-/pairs")["asking"]
        return found
    except running_relay.OtherProgram:
        # The default port of an address that is not given may belong to a relay with another state directory.
        if args.port is not None or args.host is not None or relay_choice.candidates(args, flags.settings(args)):
            raise
        return []
    except ExitWith:
        return []  # no relay runs there: no page requests pairing, and the paired pages are in the file


def _revoke(args: argparse.Namespace) -> int:
    """Writes the token file, which a running relay reads again; no relay is needed."""
    from tabrelay.admission.tokens import StateError

    try:
        gone = _tokens(args).revoke_pages(args.which)
    except StateError as problem:
        raise ExitWith(str(problem), help="TR315") from None
    if not gone:
        raise ExitWith(
            f"No paired page has the id or origin {args.which!r}. To see them: {running_relay.command()} pairs",
            FAILED,
            help="TR315",
        )
    for grant in gone:
        print(f"Revoked: {grant.origin} ({_names(grant)})")
    return OK


def _names(grant: Any) -> str:
    return "any server" if grant.servers is None else ", ".join(grant.servers)


def _tokens(args: argparse.Namespace) -> Tokens:
    from tabrelay.admission.tokens import Tokens

    return Tokens(flags.settings(args).home)
