"""A full console: 50 servers and 10,000 calls, as the relay's routes return them."""

from __future__ import annotations

import time
from typing import Any


def many_servers(base: str) -> list[dict[str, Any]]:
    states = ("online", "idle", "offline")
    return [
        {
            "name": f"server-{number:02}",
            "state": states[number % 3],
            "since_s": 12.5,
            "last_seen_s": 30,
            "mcp_url": f"{base}/server-{number:02}",
            "calls": number * 7,
            "stale": False,
            "in_flight": number % 2,
            "title": "A longer title" if number % 4 else None,
            "kind": "browser",
            "browser": "Chrome 140 on Linux",
            "tools": [{"name": f"tool_{each}", "description": "Do a thing."} for each in range(number % 9)],
            "drift": {"added": ["new"], "removed": [], "changed": ["old"]} if number == 4 else None,
            "tabs": [{"id": "3f9a12bc", "title": "Shopping list", "visible": True}] * (number % 3),
        }
        for number in range(50)
    ]


def many_rows() -> list[list[dict[str, Any]]]:
    started = time.time() * 1000 - 300_000
    rows = [
        {
            "id": f"many-{number}",
            "seq": number,
            "group": f"many-{number}",
            "server": f"server-{number % 50:02}",
            "method": "tools/call",
            "name": f"tool_{number % 9}",
            "kind": "call",
            "by": "client",
            "peer": "browser",
            "client": {"name": f"client {number % 7}", "version": "1"},
            "era": "2026-07-28",
            "principal": None,
            "started": started + number * 30,
            "ms": number * 7919 % 1500 / 10,
            "trace": None,
            "code": None,
            "state": "done" if number % 13 else "failed",
            "bytes_in": 300,
            "bytes_out": 500,
            "error": None if number % 13 else {"reason": "tool_error", "message": None},
            "tokens_in": 75,
            "tokens_out": 125,
        }
        for number in range(10_000)
    ]
    return [rows[at : at + 500] for at in range(0, len(rows), 500)]
