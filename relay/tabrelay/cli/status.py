"""`tabrelay status`: shows the running relay, its servers, ACP sessions and other relays of the bus.

It formats the JSON of `/-/status`, which the relay makes (`routing.status`).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tabrelay.cli import flags, running_relay
from tabrelay.cli.output import OK, ago, table
from tabrelay.cli.render import printable


def add(commands: Any) -> None:
    parser = flags.add_command(commands, "status", "Show the running relay and its servers.", "tabrelay status")
    flags.address_flags(parser)
    parser.add_argument("--json", action="store_true", default=None, help="print JSON")
    parser.add_argument("--names", action="store_true", help="print only the servers' names")
    parser.set_defaults(run=_status)


def _status(args: argparse.Namespace) -> int:
    status = running_relay.request(args, "/-/status")
    if args.json:
        print(json.dumps(status))
    elif args.names:
        for row in status["servers"]:
            print(row["name"])
    else:
        print(printable(text(status)))
    return OK


def text(status: dict[str, Any]) -> str:
    head = f"tabrelay {status['version']} at {status['url']}"
    rows = [line for row in status["servers"] for line in (_row(row), *map(_browser, row.get("instances", ())))]
    if not rows:
        return f"{head}\n\nNo servers yet: open a page that connects, or start the relay with a name."
    hint = "\n\nTools changed since they were first used. What changed: tabrelay drift"
    hint = hint if any(row.get("drift") for row in status["servers"]) else ""
    # Below the table: one long error would widen its column for all rows.
    errors = [f"{row['name']}: {row['error']}" for row in status["servers"] if row.get("error")]
    below = "\n\n" + "\n".join(errors) if errors else ""
    more = _sessions(status.get("acp", ())) + _nodes(status.get("nodes", ()))
    return f"{head}\n\n{table(('SERVER', 'STATE', 'TOOLS', 'CALLS', 'ADDRESS'), rows)}{more}{below}{hint}"


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
    if row["state"] == "online":
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
    span = row.get("since_s") if row.get("since_s") is not None else row.get("last_seen_s")
    return f"{row['state']} for {ago(span)}" if span is not None else str(row["state"])


def _calls(row: dict[str, Any]) -> str:
    return str(row.get("calls", 0)) + (f" ({row['in_flight']} running)" if row.get("in_flight") else "")
