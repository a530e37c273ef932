"""`tabrelay forget`: removes the name of a server that nothing offers any more.

Running relays are asked first; a name that a page or the configuration has stays, and the answer says why. Without a
running relay the name is removed from the file of known servers. Pairings of pages are not revoked.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tabrelay.cli import flags, relay_choice, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith


def add(commands: Any) -> None:
    about = "Remove a server from the relay: its name, its last tool list, and the record of its tools."
    parser = flags.add_command(commands, "forget", about, "tabrelay forget notes")
    parser.add_argument("servers", nargs="+", metavar="NAME", help="the servers' names")
    flags.address_flags(parser)
    parser.set_defaults(run=_forget)


def _forget(args: argparse.Namespace) -> int:
    settings = flags.settings(args, servers=None)
    code = OK
    for name in args.servers:
        try:
            _forget_one(args, settings.home, relay_choice.candidates(args, settings), name)
        except ExitWith as problem:
            if len(args.servers) == 1:
                raise
            print(problem)
            code = problem.code
    return code


def _forget_one(args: argparse.Namespace, home: Path, records: Any, name: str) -> None:
    known, is_declared, problem = False, [], None
    for record in records:
        try:
            answer = running_relay.request_at(record.url, home, "/-/forget", "POST", {"name": name})
        except running_relay.NoRelay:
            continue  # it has ended, or does not answer
        except ExitWith as error:
            if name in record.servers:
                problem = error
            continue
        known = True
        if answer["is_declared"]:
            is_declared.append(record.url)
    if problem is not None:
        raise problem
    if not (_remove_stored(home, name) or known):
        raise ExitWith(
            f'No server is called "{name}". To see them: {running_relay.command()} status', FAILED, help="TR307"
        )
    print(f'"{name}" is forgotten.')
    for url in is_declared:
        print(f"The relay at {url} was started with this name, and has it again after a restart.")
    for origin in _origins(home, name):
        print(f"{origin} may still offer it. To take that back: {running_relay.command()} pairs revoke {origin}")


def _remove_stored(home: Path, name: str) -> bool:
    """Remove the name and the browsers that shared it from the file. A running relay writes its own rows there."""
    from tabrelay.routing.catalogue_store import CatalogueStore
    from tabserver.wire.names import server_of

    store = CatalogueStore(home / "servers.json")
    found = [one for one in store.load() if server_of(one) == name]
    for one in found:
        store.remove(one)
    return bool(found)


def _origins(home: Path, name: str) -> list[str]:
    """The origins with a pairing for this name alone."""
    from tabrelay.admission.tokens import Tokens

    found = {grant.origin for grant in Tokens(home).issued() if grant.origin and grant.servers == (name,)}
    return sorted(origin for origin in found if origin is not None)
