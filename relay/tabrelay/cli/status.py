"""`tabrelay status`: shows a running relay, its servers, ACP sessions and other relays of the bus; or all relays.

It formats the JSON of `/-/status`, which the relay makes (`routing.status`). Of several relays without a flag, the text
shows all: that is the question which one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

from tabrelay.cli import colours, flags, relay_choice, running_relay
from tabrelay.cli.output import OK, UNREACHABLE, ExitWith, ago, table
from tabrelay.cli.render import printable

STATE_COLUMN: Final = 1


def add(commands: Any) -> None:
    about = "Show the running relay and its servers."
    parser = flags.add_command(commands, "status", about, "tabrelay status\n  tabrelay status --all")
    flags.address_flags(parser)
    parser.add_argument("--all", action="store_true", help="all relays of this user that run")
    parser.add_argument("--json", action="store_true", default=None, help="print JSON")
    parser.add_argument("--names", action="store_true", help="print only the servers' names")
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> int:
    settings = flags.settings(args)
    records = relay_choice.candidates(args, settings)
    if args.all or (len(records) > 1 and not args.json):
        return _all(args, settings.home, records)
    status = running_relay.request(args, "/-/status")
    if args.json:
        print(json.dumps(status))
    elif args.names:
        for row in status["servers"]:
            print(row["name"])
    else:
        print(text(status, colours.for_stream(sys.stdout)))
    return OK


def _all(args: argparse.Namespace, home: Any, records: Any) -> int:
    found, silent = [], []
    for record in records:
        try:
            status = running_relay.request_at(record.url, home, "/-/status")
        except ExitWith as error:
            silent.append((record.address, f"{error} [{error.help}]" if error.help else str(error)))
        else:
            found.append({**status, "process": record.process.pid, "command": list(record.command)})
    if args.json:
        print(json.dumps({"relays": found}))
        return OK
    if args.names:
        for name in sorted({row["name"] for status in found for row in status["servers"]}):
            print(name)
        return OK
    if not records:
        raise ExitWith(f"No relay runs. Start one: {running_relay.command()} demo", UNREACHABLE)
    print("\n\n".join(text(status, colours.for_stream(sys.stdout)) for status in found))
    for url, problem in silent:
        print(f"\n{url} does not answer: {problem}", file=sys.stderr)
    return OK


def text(status: dict[str, Any], colour: colours.Colours = colours.PLAIN) -> str:
    status = _printable(status)

    def coloured(column: int, cell: str) -> str:
        return colour(_colour(cell), cell) if column == STATE_COLUMN and cell else cell

    head = f"tabrelay {status['version']} at {status['url']}"
    if status.get("app_url"):
        head = f"tabrelay {status['version']} serves an app at {status['app_url']}/, its own pages at {status['url']}"
    rows = [line for row in status["servers"] for line in (_row(row), *map(_browser, row.get("instances", ())))]
    if not rows:
        return f"{head}\n\nNo servers yet: open a page that connects, or start the relay with a name."
    hint = f"\n\nTools changed since they were first used. What changed: {running_relay.command()} drift"
    hint = hint if any(row.get("drift") for row in status["servers"]) else ""
    # Below the table: one long error would widen its column for all rows.
    errors = [f"{row['name']}: {row['error']}" for row in status["servers"] if row.get("error")]
    below = "\n\n" + "\n".join(errors) if errors else ""
    more = (
        _tasks(status["servers"])
        + _sessions(status.get("acp", ()))
        + _nodes(status.get("nodes", ()))
        + _refused(status.get("refused", ()))
    )
    return f"{head}\n\n{table(('SERVER', 'STATE', 'TOOLS', 'CALLS', 'ADDRESS'), rows, coloured)}{more}{below}{hint}"


def _printable(value: Any) -> Any:
    """The status with texts that are safe on a terminal. Colour is added later."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable(one) for key, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value


def _colour(state: str) -> str:
    word = state.partition(" ")[0].rstrip(",")
    if word == "offline" and any(bad in state for bad in ("failed", "suspended")):
        return "red"
    return {"online": "green", "idle": "yellow"}.get(word, "dim")


def _nodes(rows: Any) -> str:
    """The relays of the bus."""
    if not rows:
        return ""
    cells = [
        (
            str(row["id"]) + (" (this one)" if row["is_this"] else ""),
            str(row.get("version")),
            str(row.get("browsers")),
            str(row.get("in_flight")),
        )
        for row in rows
    ]
    return f"\n\n{table(('RELAY', 'VERSION', 'BROWSERS', 'RUNNING'), cells)}"


def _presence(row: Any) -> str:
    if not row["is_used"]:
        return "never connected: does it support MCP servers?"
    return "over HTTP" if row.get("how") == "http" else "none now"


def _sessions(rows: Any) -> str:
    """ACP sessions, and the connections of the servers that they were given."""
    if not rows:
        return ""
    cells = [
        (
            str(row["agent"]),
            str(row["session"]),
            str(row["server"]),
            ", ".join(row["connections"]) or _presence(row),
            str(row["server_id"]),
        )
        for row in rows
    ]
    return f"\n\n{table(('AGENT', 'SESSION', 'SERVER', 'CONNECTIONS', 'SERVER ID'), cells)}"


def _tasks(servers: Iterable[dict[str, Any]]) -> str:
    """The tasks of all browsers: calls that outlive their request."""
    cells = [
        (str(task["tool"]), str(row["name"]), str(task["status"]), ago(task["age_s"]), str(task["principal"]))
        for row in servers
        for browser in (row, *row.get("instances", ()))
        for task in browser.get("tasks", ())
    ]
    return f"\n\n{table(('TASK', 'SERVER', 'STATUS', 'AGE', 'CLIENT'), cells)}" if cells else ""


def _refused(pages: Iterable[dict[str, Any]]) -> str:
    """The pages that the relay refused lately, each with the command that admits it."""
    lines = []
    for page in pages:
        times = "" if page["count"] == 1 else f", {page['count']} times"
        lines.append(f"{page['origin']} ({page['server']}), {ago(page['last_s'])} ago{times}: {page['message']}")
        if page["command"]:
            lines.append(f"  To admit it: {page['command']}")
    return "\n\nRefused pages:\n" + "\n".join(lines) if lines else ""


def _row(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    state = _away(row) if row.get("connection") not in (None, "connected") else _state(row)
    notes = [note for note, is_so in (("old", row.get("stale")), ("changed", row.get("drift"))) if is_so]
    tools = str(len(row["tools"])) + (f" ({', '.join(notes)})" if notes else "")
    return str(row["name"]), state, tools, _calls(row), str(row["mcp_url"])


def _browser(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """One of several browsers that offer the same server."""
    parts = [_state(row)]
    if row["front"]:
        parts.append("in front")
    if row.get("browser"):
        parts.append(row["browser"])
    if row["state"] != "offline":
        parts.append(f"{len(row['tabs'])} tab{'' if len(row['tabs']) == 1 else 's'}")
    if row.get("last_used_s") is not None:
        parts.append(f"used {ago(row['last_used_s'])} ago")
    return f"  ~{row['id']}", ", ".join(parts), "", _calls(row), str(row["mcp_url"])


def _away(row: dict[str, Any]) -> str:
    """The state of an upstream that is not connected, and the next attempt."""
    attempts, retry_s = row["attempts"], row["next_retry_s"]
    parts = ["offline", str(row["connection"])]
    if attempts:
        parts.append(f"{attempts} attempt{'' if attempts == 1 else 's'}")
    if retry_s is not None:
        parts.append(f"next in {ago(max(1, retry_s))}")
    return ", ".join(parts)


def _state(row: dict[str, Any]) -> str:
    if row["state"] == "idle":
        return f"idle for {ago(row['since_s'] or 0)}, no page is open"
    span = row.get("since_s") if row.get("since_s") is not None else row.get("last_seen_s")
    return f"{row['state']} for {ago(span)}" if span is not None else str(row["state"])


def _calls(row: dict[str, Any]) -> str:
    return str(row.get("calls", 0)) + (f" ({row['in_flight']} running)" if row.get("in_flight") else "")
