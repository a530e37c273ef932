"""`tabrelay config check` and `tabrelay config show`: validate and display configuration files.

They read the files as `serve` does, without starting a relay. The rules are in `tabrelay.config`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from tabrelay.cli import flags
from tabrelay.cli.output import FAILED, OK, ExitWith, help_line


def add(commands: Any) -> None:
    parser = flags.add_command(
        commands,
        "config",
        "Check configuration files, or show the effective configuration.",
        "tabrelay config check -c tabrelay.toml",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, about, run in (
        ("check", "Report every mistake in the files, with file, key and what was expected.", _check),
        ("show", "Print the effective configuration as TOML; secrets are left out.", _show),
    ):
        action = flags.add_command(actions, name, about, f"tabrelay config {name} -c tabrelay.toml -c ~/.claude.json")
        flags.config_flag(action)
        action.add_argument("servers", nargs="*", metavar="NAME[:/PATH]", help="names as `serve` takes them")
        action.add_argument("--json", action="store_true", default=None, help="print JSON")
        action.set_defaults(run=run, action=name)


def _load(args: argparse.Namespace) -> Any:
    from tabrelay.config.mistakes import ConfigMistakes
    from tabrelay.config.reader import effective
    from tabrelay.config.settings import ConfigError

    args.servers = args.servers or None
    try:
        _, config = effective({**vars(args), "json": None})
    except ConfigMistakes as problem:
        if args.json:
            print(json.dumps({"ok": False, "mistakes": [asdict(mistake) for mistake in problem.mistakes]}))
        else:
            print(problem, file=sys.stderr)
            count = len(problem.mistakes)
            print(f"{count} {'mistake' if count == 1 else 'mistakes'}.\n{help_line('TR309')}", file=sys.stderr)
        return None
    except ConfigError as problem:
        raise ExitWith(str(problem), FAILED, help="TR309") from None
    if not config.programs and not config.entries:
        raise ExitWith(f"Name a file: tabrelay config {args.action} -c FILE")
    return config


def _check(args: argparse.Namespace) -> int:
    from tabrelay.config.specs import StdioSpec

    config = _load(args)
    if config is None:
        return FAILED
    notes = [*config.notes, *(_absent(spec) for spec in config.servers.values() if isinstance(spec, StdioSpec))]
    notes = [note for note in notes if note]
    if args.json:
        servers = {name: spec.kind for name, spec in sorted(config.servers.items())}
        print(json.dumps({"ok": True, "servers": servers, "disabled": list(config.disabled), "notes": notes}))
        return OK
    for file, program in config.programs.items():
        print(f"{file}: {'our own form' if program == 'tabrelay' else f'the form of {program}'}")
    for name, spec in sorted(config.servers.items()):
        print(f"  {name}: {spec.kind}")
    for name in config.disabled:
        print(f"  {name}: switched off")
    for note in notes:
        print(f"Note: {note}")
    print("No mistakes.")
    return OK


def _absent(spec: Any) -> str:
    """A note, not a mistake: the program may be installed later."""
    import shutil

    env = dict(spec.env)
    found = shutil.which(spec.command, path=env.get("PATH"))
    return "" if found or spec.cwd else f'{spec.name}: there is no program "{spec.command}" on the PATH.'


def _show(args: argparse.Namespace) -> int:
    from tabrelay.config import display

    config = _load(args)
    if config is None:
        return FAILED
    shown = display.redacted(config)
    print(json.dumps(shown) if args.json else display.as_toml(shown))
    return OK
