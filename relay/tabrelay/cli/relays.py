"""`tabrelay stop` and `tabrelay restart`: end a running relay, or start it again with the same flags on the same port.

The relay proves itself, and its process must be the one of its record, before a signal is sent: the pid alone could
belong to another process by now. Calls in flight are answered first. Other relays are not touched.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import Any, Final

from tabrelay.cli import flags, relay_choice, running_relay
from tabrelay.cli.output import FAILED, OK, UNREACHABLE, USAGE, ExitWith
from tabrelay.system import relay_records
from tabrelay.system.relay_records import RelayRecord

POLL_S: Final = 0.05
REPORT_AFTER_S: Final = 1.0
MARGIN_S: Final = 15.0  # beyond the time for calls in flight
START_S: Final = 60.0


def add(commands: Any) -> None:
    about = "Stop a running relay. Running calls finish first; other relays continue."
    stop = flags.add_command(
        commands, "stop", about, "tabrelay stop\n  tabrelay stop --port 9000\n  tabrelay stop notes"
    )
    _target_flags(stop)
    stop.add_argument("--all", action="store_true", help="all relays of this user")
    stop.add_argument("--force", action="store_true", help="end a relay at once that does not answer")
    stop.set_defaults(run=_stop)

    about = "Restart a running relay, with the same flags, in the same terminal or service, on the same port."
    restart = flags.add_command(commands, "restart", about, "tabrelay restart\n  tabrelay restart notes")
    _target_flags(restart)
    restart.set_defaults(run=_restart)


def _target_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", metavar="NAME", help="the relay that has this server")
    flags.address_flags(parser)


def _stop(args: argparse.Namespace) -> int:
    settings = flags.settings(args, server=None)
    if args.all and args.server:
        raise ExitWith("--all stops every relay, so it needs no name.")
    records = relay_choice.candidates(args, settings) if args.all else [_chosen(args, settings)]
    if not records:
        raise ExitWith("No relay runs.", UNREACHABLE)
    for record in records:
        _signal(record, settings.home, signal.SIGTERM, force=args.force)
    code = OK
    for record in records:
        limit_s = settings.drain_s + MARGIN_S
        if _wait(
            lambda record=record: record.process.is_running is False, limit_s, f"{record.address} finishes its calls"
        ):
            relay_records.path_of(settings.home, record.id).unlink(missing_ok=True)
            print(f"Stopped: {record.address}")
            if record.service:
                end = f"{running_relay.command()} service remove"
                print(f"It is a service, and starts again with the computer. To end that: {end}")
        else:
            hint = f"To end it at once: {_again(record)} --force"
            print(f"{record.address} still runs after {limit_s:.0f} s. {hint} [TR317]", file=sys.stderr)
            code = FAILED
    return code


def _restart(args: argparse.Namespace) -> int:
    settings = flags.settings(args, server=None)
    number = getattr(signal, "SIGUSR1", None)
    record = _chosen(args, settings)
    if number is None:
        raise ExitWith(f"This system has no restart. Stop it and start it again: {_again(record)}", USAGE, help="TR317")
    _signal(record, settings.home, number, force=False)

    def successor() -> RelayRecord | None:
        found = (
            one for one in relay_records.read(settings.home) if one.address == record.address and one.id != record.id
        )
        return next(found, None)

    if not _wait(
        lambda: successor() is not None or record.process.is_running is False,
        settings.drain_s + START_S,
        f"{record.address} finishes its calls",
    ):
        raise ExitWith(f"{record.address} did not restart. See: {running_relay.command()} logs", FAILED, help="TR317")
    if successor() is None:
        logs = f"{running_relay.command()} logs"
        raise ExitWith(
            f"{record.address} has stopped, and did not start again. See what it printed, and: {logs}",
            FAILED,
            help="TR317",
        )
    print(f"Restarted: {record.address}")
    return OK


def _chosen(args: argparse.Namespace, settings: Any) -> RelayRecord:
    record = relay_choice.chosen(args, settings, args.server)
    if record is None:
        where = f" at port {settings.port}" if args.port is not None else ""
        raise ExitWith(f"No relay runs{where}.", UNREACHABLE)
    if args.server is not None and relay_choice.name_of(args.server) not in record.servers:
        raise ExitWith(f'No running relay has a server "{args.server}".', FAILED, help="TR307")
    return record


def _signal(record: RelayRecord, home: Any, number: int, *, force: bool) -> None:
    # defence: signals to a process that has the pid of a relay
    if record.process.is_running is not True:
        raise ExitWith(f"{record.address} runs in another container or system. Stop it there.", FAILED, help="TR317")
    if not force and not relay_choice.answers(record, home):
        hint = f"To end its process, {record.process.pid}, at once: {_again(record)} --force"
        raise ExitWith(f"{record.address} does not answer. {hint}", UNREACHABLE, help="TR317")
    try:
        os.kill(record.process.pid, getattr(signal, "SIGKILL", signal.SIGTERM) if force else number)
    except ProcessLookupError:
        return  # it has ended just now
    except PermissionError:
        raise ExitWith(
            f"{record.address} is a process of another user. Stop it as that user.", FAILED, help="TR317"
        ) from None


def _again(record: RelayRecord) -> str:
    return f"{running_relay.command()} stop --port {record.shown_port}"


def _wait(is_done: Any, limit_s: float, what: str) -> bool:
    began, is_told = time.monotonic(), False
    while not is_done():
        waited = time.monotonic() - began
        if waited > limit_s:
            return False
        if waited > REPORT_AFTER_S and not is_told:
            is_told = True
            print(f"{what} …", file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return True
