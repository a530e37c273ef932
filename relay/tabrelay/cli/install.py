"""`tabrelay install` and `tabrelay uninstall`: write and remove servers in the configuration files of MCP clients.

Entries of other programs are replaced or removed only with --force. Without a client, `install` lists the known
clients. Editing the files is in `client_files`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabrelay.cli import flags, relay_choice, running_relay
from tabrelay.cli.output import FAILED, OK, ExitWith

if TYPE_CHECKING:
    from tabrelay.cli.client_files.file import ConfigFile
    from tabrelay.cli.client_files.known import KnownClient


def add(commands: Any) -> None:
    install = flags.add_command(
        commands,
        "install",
        "Write servers into a client's configuration. Without a server: all servers of the running relay. Without a "
        "client: list the clients on this computer and their servers.",
        "tabrelay install claude-desktop notes\n  tabrelay install cursor notes --project --dry-run",
    )
    install.mixes = True
    _client_flags(install, is_needed=False)
    install.add_argument("servers", nargs="*", metavar="URL|NAME", help="servers of the local relay, or any by URL")
    install.add_argument("--as", dest="entry", metavar="NAME", help="the entry's name (default: the server's)")
    install.add_argument("--force", action="store_true", help="replace a different entry with that name")
    install.add_argument("--json", action="store_true", default=None, help="print the list of clients as JSON")
    flags.address_flags(install)
    install.set_defaults(run=_install)

    uninstall = flags.add_command(
        commands,
        "uninstall",
        "Remove servers from a client's configuration. Without a name: all that tabrelay wrote.",
        "tabrelay uninstall claude-desktop notes",
    )
    uninstall.mixes = True
    _client_flags(uninstall, is_needed=True)
    uninstall.add_argument("servers", nargs="*", metavar="NAME", help="names of entries")
    uninstall.add_argument("--force", action="store_true", help="also entries that tabrelay did not write")
    uninstall.set_defaults(run=_uninstall)


def _client_flags(parser: argparse.ArgumentParser, is_needed: bool) -> None:
    from tabrelay.cli.client_files.known import BY_NAME

    about = ", ".join(BY_NAME)
    parser.add_argument("client", nargs=None if is_needed else "?", metavar="CLIENT", help=about)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", action="store_true", help="use the project's file in this directory")
    where.add_argument("--config", metavar="FILE", help="in this file")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")


def _install(args: argparse.Namespace) -> int:
    if args.client is None:
        return _overview(args)
    client, file = _client(args.client), _file(args)
    servers = args.servers or _all_servers(args)
    if args.entry is not None and len(servers) > 1:
        raise ExitWith("--as needs exactly one server.")
    wanted = {args.entry or _entry_name(server): client.entry(_launch(args, server)) for server in servers}
    known = _servers(file)
    taken = [name for name, entry in wanted.items() if name in known and known[name] != entry]
    if taken and not args.force:
        raise ExitWith(
            f"{client.title} has another server named {', '.join(taken)} in {file.path}. "
            "Replace it: --force. Or choose another name: --as NAME.",
            FAILED,
            help="TR310",
        )
    changed = {name: entry for name, entry in wanted.items() if known.get(name) != entry}
    if not changed:
        print(f"{client.title} has {', '.join(wanted)} already: {file.path}")
        return OK
    _apply(args, lambda: file.put(changed))
    if not args.dry_run:
        print(f"{client.title} has {', '.join(changed)} now. {client.after}")
        _warn_of_unknown(args, servers)
    return OK


def _warn_of_unknown(args: argparse.Namespace, servers: Sequence[str]) -> None:
    """A name that no running relay has may be misspelt, or its page is not open yet."""
    from tabrelay.bridge.target import is_url

    records = relay_choice.candidates(args, flags.settings(args))
    known = {name for record in records for name in record.servers}
    for server in servers if records else ():
        if not is_url(server) and relay_choice.name_of(server) not in known:
            hint = relay_choice.similar(records, server) or "It works when a page offers it."
            print(f'No running relay has a server "{server}". {hint}', file=sys.stderr)


def _all_servers(args: argparse.Namespace) -> list[str]:
    """All servers of the running relays: the bridge finds the relay of each by its name."""
    settings = flags.settings(args)
    bases = [record.url for record in relay_choice.candidates(args, settings)]
    bases = bases or [running_relay.base_url(settings.host, settings.port)]
    try:
        statuses = [running_relay.request_at(base, settings.home, "/-/status") for base in bases]
    except ExitWith as problem:
        raise ExitWith(f"Which server? tabrelay install {args.client} NAME\n({problem})", help="TR307") from None
    found = list(dict.fromkeys(row["name"] for status in statuses for row in status["servers"]))
    if not found:
        raise ExitWith(f"The relay has no servers yet. Name one: tabrelay install {args.client} NAME", help="TR307")
    return found


def _uninstall(args: argparse.Namespace) -> int:
    from tabrelay.cli.client_files.known import starts_bridge

    client, file = _client(args.client), _file(args)
    known = _servers(file)
    names = args.servers or [name for name, entry in known.items() if starts_bridge(entry)]
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise ExitWith(
            f"{client.title} has no server {', '.join(missing) or 'of ours'} in {file.path}.", FAILED, help="TR310"
        )
    others = [name for name in names if not starts_bridge(known[name])]
    if others and not args.force:
        raise ExitWith(
            f"{', '.join(others)} in {file.path} was not written by tabrelay. All the same: --force",
            FAILED,
            help="TR310",
        )
    _apply(args, lambda: file.remove(names))
    if not args.dry_run:
        print(f"{client.title} no longer has {', '.join(names)}.")
    return OK


def _apply(args: argparse.Namespace, make: Callable[[], Any]) -> None:
    from tabrelay.cli.client_files.file import FileError

    try:
        change = make()
        if args.dry_run:
            print(change.diff(), end="")
            return
        copy = change.apply()
    except FileError as problem:
        raise ExitWith(str(problem), FAILED, help="TR310") from None
    print(f"{change.path} written." + (f" As it was: {copy}" if copy else ""))


def _client(name: str) -> KnownClient:
    from difflib import get_close_matches

    from tabrelay.cli.client_files.known import BY_NAME

    if name not in BY_NAME:
        close = get_close_matches(name.lower(), BY_NAME, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Known are: {', '.join(BY_NAME)}."
        raise ExitWith(f"{name!r} is not a known client. {hint}", help="TR310")
    return BY_NAME[name]


def _file(args: argparse.Namespace) -> ConfigFile:
    from tabrelay.cli.client_files.file import ConfigFile, FileError
    from tabrelay.cli.client_files.known import UserFolders

    client = _client(args.client)
    if args.config is not None:
        path = Path(args.config).expanduser()
    elif args.project:
        if client.project is None:
            raise ExitWith(f"{client.title} has no file inside projects.", help="TR310")
        path = Path(client.project)
    else:
        path = client.path(UserFolders.here())
    try:
        return ConfigFile(client, path)
    except FileError as problem:
        raise ExitWith(str(problem), FAILED, help="TR310") from None


def _servers(file: Any) -> dict[str, Any]:
    from tabrelay.cli.client_files.file import FileError

    try:
        found: dict[str, Any] = file.servers()
        return found
    except FileError as problem:
        raise ExitWith(str(problem), FAILED, help="TR310") from None


def _entry_name(server: str) -> str:
    """The entry's name: a server's name, or the host of a URL, `mcp.example.com` for `https://mcp.example.com/mcp`."""
    from urllib.parse import urlsplit

    from tabrelay.bridge.target import TargetError, is_url, parse_url

    if not is_url(server):
        from tabserver.wire.errors import ServerNameError
        from tabserver.wire.names import check_address

        try:
            return check_address(server)
        except ServerNameError as problem:
            raise ExitWith(str(problem), help="TR310") from None
    try:
        parse_url(server, allows_plain=True)
    except TargetError as problem:
        raise ExitWith(str(problem), help="TR310") from None
    return urlsplit(server).hostname or server


def _launch(args: argparse.Namespace, server: str) -> Any:
    """The command with the program's full path: desktop clients do not have the shell's PATH."""
    from tabrelay.cli.client_files.known import Launch

    words = ["stdio", server]
    if args.home is not None:
        words += ["--home", str(args.home.expanduser().absolute())]
    first, *rest = running_relay.program()
    return Launch(first, (*rest, *words))


def _overview(args: argparse.Namespace) -> int:
    from tabrelay.cli.client_files.file import ConfigFile, FileError
    from tabrelay.cli.client_files.known import CLIENTS, UserFolders, starts_bridge
    from tabrelay.cli.output import table

    place, rows = UserFolders.here(), []
    for client in CLIENTS:
        path = client.path(place)
        try:
            file = ConfigFile(client, path)
            ours = [name for name, entry in file.servers().items() if starts_bridge(entry)]
            state = ", ".join(ours) or ("none of ours" if file.is_there else "no file yet")
        except FileError:
            state = "can't be read"
        rows.append((client.name, client.title, state, str(path)))
    if args.json:
        names = ("client", "title", "servers", "file")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
        return OK
    print(table(("CLIENT", "", "SERVERS", "FILE"), rows))
    return OK
