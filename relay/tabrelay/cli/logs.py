"""`tabrelay logs`: prints the relay's log or call log, filtered, and follows it.

It reads the files, including rotated ones, so it works without a running relay. Writing them is in `tabrelay.observe`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tabrelay.cli import flags, relay_choice
from tabrelay.cli.output import FAILED, OK, ExitWith
from tabrelay.cli.render import printable
from tabrelay.config.settings import LOG_LEVELS

LEVELS: Final = (*LOG_LEVELS, "critical")
SPAN: Final = re.compile(r"(\d+)\s*(s|min|m|h|d)")
SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
POLL_S: Final = 0.2


def add(commands: Any) -> None:
    parser = flags.add_command(commands, "logs", "Show the relay's log.", "tabrelay logs -f --level warning")
    parser.add_argument(
        "-n", "--lines", type=int, default=50, metavar="N", help="the last N lines (default 50; 0: all)"
    )
    parser.add_argument("--calls", action="store_true", help="the call log: who called what, when, how it ended")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new lines")
    parser.add_argument("--level", choices=LEVELS, default="trace", help="only this level and above")
    parser.add_argument("--since", type=span, metavar="SPAN", help="only the last 10min, 2h, 1d, …")
    parser.add_argument("--json", action="store_true", default=None, help="as they are in the file, one object a line")
    parser.add_argument("--file", type=Path, metavar="FILE", help="this file (default: of the relay started last)")
    flags.address_flags(parser)
    parser.set_defaults(run=_logs)


def span(text: str) -> timedelta:
    found = SPAN.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a span such as 10min")
    return timedelta(seconds=int(found[1]) * SECONDS[found[2]])


def _logs(args: argparse.Namespace) -> int:
    from collections import deque

    from tabrelay.observe.log_setup import log_files

    path = args.file or _path(args)
    wanted = _filter(args)
    files = log_files(path)
    if not files and not args.follow:
        setting = "TABRELAY_CALL_LOG" if args.calls else "TABRELAY_LOG_FILE"
        raise ExitWith(f"There is no log at {path}. (A relay writes one unless {setting}=none.)", FAILED, help="TR313")
    lines = (line for file in files for line in _lines(file) if wanted(line))
    for line in deque(lines, maxlen=args.lines or None):
        _show(line, args)
    if args.follow:
        for line in follow(path, files[-1:] == [path]):
            if wanted(line):
                _show(line, args)
    return OK


def _path(args: argparse.Namespace) -> Path:
    """The log file of the running relay, or else the one written last."""
    from tabrelay.observe.log_setup import log_path

    settings = flags.settings(args)
    record = relay_choice.chosen(args, settings, getattr(args, "server", None))
    port = record.port if record is not None else settings.port
    stem, setting = ("calls", "call_log") if args.calls else ("relay", "log_file")
    path = log_path(settings.home, port, getattr(settings, setting), stem)
    if path is None:
        raise ExitWith(f"No log is kept: TABRELAY_{setting.upper()} turns it off.", FAILED, help="TR313")
    if record is None and args.port is None and not path.is_file():
        others = sorted(path.parent.glob(f"{stem}-*.log"), key=lambda one: one.stat().st_mtime)
        path = others[-1] if others else path
    return path


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in file)
    except FileNotFoundError:
        return  # rotated just now: it exists under another name


def follow(path: Path, is_begun: bool, pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """New lines of the log, across rotations. `is_begun`: the lines so far were shown."""
    rest = ""
    while True:
        try:
            file = path.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            pause(POLL_S)
            continue
        with file:
            if is_begun:
                file.seek(0, 2)
                is_begun = False
            is_other = False
            while not is_other:
                text = file.read()
                if not text and _is_other(file, path):
                    is_other, text = True, file.read()  # lines written between the two reads
                *lines, rest = (rest + text).split("\n")
                yield from lines
                if not text and not is_other:
                    pause(POLL_S)


def _is_other(file: Any, path: Path) -> bool:
    """Whether the file was rotated and a new one begun."""
    import os

    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False  # the next file does not exist yet


def _filter(args: argparse.Namespace) -> Callable[[str], bool]:
    lowest = LEVELS.index(args.level)
    since = (datetime.now(UTC) - args.since).strftime("%Y-%m-%dT%H:%M:%S") if args.since else ""

    def wanted(line: str) -> bool:
        row = _row(line)
        level = row.get("level", "info")
        return (LEVELS.index(level) if level in LEVELS else 2) >= lowest and row.get("time", since) >= since

    return wanted


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        return row if isinstance(row, dict) else {"message": line}
    except ValueError:
        return {"message": line}


def _show(line: str, args: argparse.Namespace) -> None:
    if args.json:
        print(line, flush=args.follow)
        return
    text = (_call if args.calls else _text)(_row(line))
    print(printable(text) if sys.stdout.isatty() else text, flush=args.follow)


def _when(row: dict[str, Any]) -> str:
    """In local time."""
    try:
        return datetime.fromisoformat(row["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (KeyError, ValueError):
        return "?" * 19


def _call(row: dict[str, Any]) -> str:
    """One call on one line."""
    if "calls" in row:
        return f"{_when(row)} {row['calls']} calls were not logged: they came too fast"
    client = f" ({row['client']})" if row.get("client") else ""
    what = f"{row.get('server', '?')} {row.get('method', '?')} {row.get('name', '')}".rstrip()
    text = f"{_when(row)} {what} by {row.get('principal', '?')}{client}: {row.get('outcome', '?')}"
    text += f" in {row['ms']} ms" if "ms" in row else ""
    text += f" {json.dumps(row['arguments'], ensure_ascii=False)}" if "arguments" in row else ""
    return text + (f" ({row['why']})" if row.get("why") else "")


def _text(row: dict[str, Any]) -> str:
    """In the format that the relay uses on stderr."""
    from tabrelay.observe.log_setup import one_line

    text = f"{_when(row)} {row.get('level', '?').upper()} {row.get('logger', '?')}: {one_line(row.get('message', ''))}"
    if "exception" in row:
        text += f"\n{row['exception']}"
    return text
