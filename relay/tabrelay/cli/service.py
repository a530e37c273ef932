"""`tabrelay service`: installs the relay as a service of this user (systemd or launchd).

It writes one unit or property list that runs `tabrelay serve` with the given flags, and starts it. A file that another
program wrote is not removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tabrelay.cli import flags, running_relay, serve
from tabrelay.cli.output import FAILED, OK, ExitWith

UNIT: Final = "tabrelay.service"
LABEL: Final = "dev.tabrelay.relay"
MARK: Final = "Written by `tabrelay service install`."
# The relay answers the calls in flight first: see drain_s.
STOP_S: Final = 30
OWN: Final = ("help", "dry_run", "force", "open_browser", "json")
PATHS: Final = ("home", "config", "log_file")
JSON_HELP: Final = "print one JSON line: path of the service's file, commands, and done: false with --dry-run"


@dataclass(frozen=True, slots=True)
class SystemService:
    """The service's file, and the commands that start and stop it."""

    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    after: str
    """A hint for the user after the installation."""


def add(commands: Any) -> None:
    about = "Start the relay with the computer, as a service of this user."
    parser = flags.add_command(commands, "service", about, "tabrelay service install notes --port 4747")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    about = "Write the service's file and start it. Takes the names and flags of `tabrelay serve`."
    install = flags.add_command(actions, "install", about, "tabrelay service install notes")
    serve.serve_flags(install, json_help=JSON_HELP)
    install.add_argument("--dry-run", action="store_true", help="show the file and the commands, and do nothing")
    install.add_argument("--force", action="store_true", help="replace an existing service")
    install.set_defaults(run=lambda args: _install(args, install))

    about = "Stop the service and remove its file."
    remove = flags.add_command(actions, "remove", about, "tabrelay service remove")
    remove.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    remove.add_argument("--json", action="store_true", help=JSON_HELP)
    remove.set_defaults(run=_remove)


def _install(args: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    # Report settings with which the relay can't start now, not after the next reboot.
    serve.effective(args)
    service = describe(_program(args, parser))
    if service.path.exists() and not args.force and not args.dry_run:
        if service.path.read_text(encoding="utf-8") == service.text:
            return _print(args, service, (), f"The service is there already: {service.path}")
        raise ExitWith(f"There is another service already: {service.path}. Replace it: --force", FAILED, help="TR312")
    if args.dry_run:
        return _print(args, service, service.start, f"{service.path}:\n\n{service.text}\nthen: {_shown(service.start)}")
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        service.path.write_text(service.text, encoding="utf-8")
    except OSError as problem:
        raise ExitWith(f"{service.path} can't be written: {problem.strerror}.", FAILED, help="TR312") from None
    if not args.json:
        print(f"{service.path} written.")
    _run(service.start)
    return _print(args, service, service.start, f"The relay runs, and will after a reboot. {service.after}")


def _remove(args: argparse.Namespace) -> int:
    service = describe(("tabrelay", "serve"))
    if not service.path.exists():
        raise ExitWith(f"There is no service: {service.path}", FAILED, help="TR312")
    if MARK not in service.path.read_text(encoding="utf-8", errors="replace"):
        raise ExitWith(f"{service.path} was not written by tabrelay: remove it by hand.", FAILED, help="TR312")
    if args.dry_run:
        return _print(args, service, service.stop, f"{_shown(service.stop)}\nthen: rm {service.path}")
    _run(service.stop, must_work=False)
    service.path.unlink()
    if service.path.suffix == ".service":
        _run((("systemctl", "--user", "daemon-reload"),), must_work=False)
    return _print(args, service, service.stop, f"The service is gone: {service.path}")


def _print(args: argparse.Namespace, service: SystemService, commands: Sequence[Sequence[str]], shown: str) -> int:
    """The outcome: `shown`, or one JSON line. Without --dry-run, the commands were run."""
    found = {"path": str(service.path), "commands": [list(command) for command in commands], "done": not args.dry_run}
    if "servers" in args:  # of `install`, which writes the file
        found["text"] = service.text
    print(json.dumps(found) if args.json else shown)
    return OK


def _program(args: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The command that the service runs: `serve` with the given names and flags."""
    words = [*running_relay.program(), "serve", *(args.servers or ())]
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if not action.option_strings or value is None or action.dest in OWN:
            continue
        flag = action.option_strings[-1]
        if action.nargs == 0:
            words.append(flag)
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [flag, _absolute(str(one)) if action.dest in PATHS else str(one)]
    return (*words, "--no-open")


def _absolute(path: str) -> str:
    """A service runs in another directory."""
    return path if path == "none" else str(Path(path).expanduser().absolute())


def describe(program: Sequence[str], platform: str = sys.platform) -> SystemService:
    """The service for this system. Raises ExitWith if the system has none."""
    if platform == "darwin":
        return _launchd(program)
    if platform == "win32":
        raise ExitWith(
            "There is no service on Windows yet: put `tabrelay serve` into the Task Scheduler.", FAILED, help="TR312"
        )
    return _systemd(program)


def _systemd(program: Sequence[str]) -> SystemService:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    text = f"""\
# {MARK}
[Unit]
Description=Tabrelay: browser tabs as MCP servers
After=network.target

[Service]
ExecStart={" ".join(_unit_word(word) for word in program)}
Restart=on-failure
RestartSec=2
TimeoutStopSec={STOP_S}
NoNewPrivileges=yes
# What it says at its start is for people; what it does is in `tabrelay logs`.
StandardOutput=null

[Install]
WantedBy=default.target
"""
    control = ("systemctl", "--user")
    start = ((*control, "daemon-reload"), (*control, "enable", UNIT), (*control, "restart", UNIT))
    stop = ((*control, "disable", "--now", UNIT),)
    program_name = running_relay.command()
    after = (
        f"To have it without logging in: loginctl enable-linger. To see it: {program_name} status, {program_name} logs"
    )
    return SystemService(config / "systemd" / "user" / UNIT, text, start, stop, after)


def _launchd(program: Sequence[str]) -> SystemService:
    path = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    words = "\n".join(f"    <string>{escape(word)}</string>" for word in program)
    text = f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- {MARK} -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{LABEL}</string>
  <key>ProgramArguments</key>
  <array>
{words}
  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ExitTimeOut</key>
  <integer>{STOP_S}</integer>
</dict>
</plist>
"""
    domain = f"gui/{os.getuid()}" if hasattr(os, "getuid") else "gui/0"
    stop = (("launchctl", "bootout", f"{domain}/{LABEL}"),)
    return SystemService(
        path,
        text,
        (("launchctl", "bootstrap", domain, str(path)),),
        stop,
        f"To see it: {running_relay.command()} status",
    )


def _unit_word(word: str) -> str:
    """Escapes a word for a systemd unit: quotes around blanks, and special characters doubled."""
    word = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{word}"' if not word or any(sign in word for sign in " \t';#") else word


def _run(commands: Sequence[Sequence[str]], must_work: bool = True) -> None:
    for command in commands:
        if shutil.which(command[0]) is None:
            if must_work:
                raise ExitWith(
                    f"{command[0]} was not found. When it is installed, run: {_shown(commands)}", FAILED, help="TR312"
                )
            return
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode and must_work:
            raise ExitWith(
                f"{shlex.join(command)} failed: {(ended.stderr or ended.stdout).strip()}", FAILED, help="TR312"
            )


def _shown(commands: Sequence[Sequence[str]]) -> str:
    return " && ".join(shlex.join(command) for command in commands)
