"""Choice between several running relays: the one that has a server, the one that the user names, or a question.

The records of the state directory say which relays run and what they have (`system.relay_records`). Where more than one
remains, each has to prove itself, and the user is asked on a terminal; otherwise the error lists them with the flags
that select one.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tabrelay.cli import running_relay
from tabrelay.cli.output import USAGE, ExitWith
from tabrelay.system import relay_records
from tabrelay.system.relay_records import RelayRecord

PROOF_S: Final = 2.0
CHECK_EVERY_S: Final = 1.0
SHOWN_NAMES: Final = 6


def base(args: argparse.Namespace, settings: Any, server: str | None = None) -> str:
    """The URL of the relay that has `server`; without one, of the only relay. Raises ExitWith if that is open."""
    record = chosen(args, settings, server)
    return running_relay.base_url(settings.host, settings.port) if record is None else record.url


def chosen(args: argparse.Namespace, settings: Any, server: str | None = None) -> RelayRecord | None:
    """None: no record fits the flags, or no relay runs."""
    found = relay_records.best(candidates(args, settings), name_of(server))
    if len(found) > 1:
        found = [record for record in found if answers(record, settings.home)] or found[:1]
    if len(found) > 1:
        return _ask(found) if _can_ask(args) else _refuse(found, server)
    return found[0] if found else None


def candidates(args: argparse.Namespace, settings: Any) -> list[RelayRecord]:
    """The running relays that the flags --host and --port allow."""
    return [record for record in relay_records.read(settings.home) if is_selected(record, args, settings)]


def is_selected(record: RelayRecord, args: argparse.Namespace, settings: Any) -> bool:
    """Do the flags --host and --port allow this relay?"""
    if args.port is None and args.host is None:
        return True
    return settings.port in record.ports and (args.host is None or record.host == settings.host)


def is_local(home: Path, target: str) -> bool:
    """Is it the URL of a relay that runs here? Then its token is in the state directory."""
    from tabrelay.bridge.target import is_url
    from tabrelay.http.addresses import is_loopback

    if not is_url(target):
        return False
    try:
        parts = urlsplit(target)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return False
    is_here = parts.scheme == "http" and is_loopback(host)
    return is_here and any(port in record.ports for record in relay_records.read(home))


def name_of(server: str | None) -> str | None:
    """The name in records: the browsers that share a name have one row."""
    from tabserver.wire.names import server_of

    return None if server is None else server_of(server)


def similar(records: Iterable[RelayRecord], server: str) -> str:
    """The name of a running relay that was probably meant, as a question; or ""."""
    from difflib import get_close_matches

    names = {name.lower(): name for record in records for name in record.servers}
    close = get_close_matches(server.lower(), names, 1)
    return f"Did you mean {names[close[0]]}?" if close else ""


def answers(record: RelayRecord, home: Path) -> bool:
    """Does the relay prove itself at its address?"""
    from tabrelay.calls.proof import Unproven, key_of

    try:
        connection, _ = running_relay.proven(record.url, key_of(running_relay.token(home)), PROOF_S)
    except (OSError, Unproven):
        return False
    connection.close()
    return True


def _can_ask(args: argparse.Namespace) -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty() and getattr(args, "json", None) is not True


def _ask(found: Sequence[RelayRecord]) -> RelayRecord:
    for number, record in enumerate(found, 1):
        print(f"  {number}  {record.address}  {names(record)}", file=sys.stderr)
    while True:
        print(f"Which relay? [1-{len(found)}] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise ExitWith("No relay was chosen.", help="TR303")
        with contextlib.suppress(ValueError):
            if 1 <= int(answer) <= len(found):
                return found[int(answer) - 1]


def _refuse(found: Sequence[RelayRecord], server: str | None) -> Any:
    what = f'{len(found)} relays have "{server}"' if server is not None else f"{len(found)} relays run"
    width = max(len(flags_of(record, found)) for record in found)
    lines = [f"  {flags_of(record, found):<{width}}  {record.address}  {names(record)}" for record in found]
    raise ExitWith("\n".join([f"{what}. Name one of them with a flag:", *lines]), USAGE, help="TR303")


def flags_of(record: RelayRecord, others: Sequence[RelayRecord]) -> str:
    """The flags that select this relay."""
    is_clear = sum(record.shown_port in other.ports for other in others) == 1
    return f"--port {record.shown_port}" if is_clear else f"--host {record.host} --port {record.shown_port}"


def print_used(found: Sequence[RelayRecord], what: str) -> None:
    """Print which of several relays is used without a question, and the flags that select another one."""
    listed = " or ".join(flags_of(record, found) for record in found)
    print(f"{len(found)} relays {what}; {found[0].address} is used. To name one: {listed}", file=sys.stderr, flush=True)


def names(record: RelayRecord) -> str:
    found = sorted(record.servers, key=lambda name: (record.rank(name), name))
    more = f", … and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
    return (", ".join(found[:SHOWN_NAMES]) or "no servers yet") + more


class RelayFinder:
    """The URL of the relay that has a server, looked up again for each request of a bridge: relays start and stop.

    A relay that was used stays in use as long as it runs and has the server. It never asks: of several relays, the one
    started last is used, and `on_several` is called once."""

    def __init__(
        self,
        home: Path,
        server: str | None,
        default: str,
        on_several: Any = lambda found: None,
        is_allowed: Callable[[RelayRecord], bool] = lambda record: True,
    ) -> None:
        """`default`: the URL as long as no relay is found. `is_allowed`: whether the flags allow this relay."""
        self._home = home
        self._is_allowed = is_allowed
        self._server = name_of(server)
        self._default = default
        self._on_several = on_several
        self._seen: Any = None
        self._checked_at = 0.0
        self._used: RelayRecord | None = None

    def __call__(self) -> str:
        now, stamps = time.monotonic(), relay_records.stamps(self._home)
        if stamps != self._seen or now - self._checked_at >= CHECK_EVERY_S or self._seen is None:
            self._seen, self._checked_at = stamps, now
            allowed = filter(self._is_allowed, relay_records.read(self._home))
            self._choose(relay_records.best(allowed, self._server))
        return self._default if self._used is None else self._used.url

    def _choose(self, found: list[RelayRecord]) -> None:
        used = None if self._used is None else self._used.id
        kept = next((record for record in found if record.id == used), None)
        self._used = kept or (found[0] if found else None)
        if kept is None and len(found) > 1:
            self._on_several(found)
