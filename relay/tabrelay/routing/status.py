"""Rows of the status route: presence, tools and browsers of each server.

Rows of many servers take long, so that they are made and encoded one by one, in steps that the caller spreads over
iterations of the event loop. Access is decided by the caller (`may_see`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

import orjson

from tabrelay.calls.peer import PeerKind
from tabrelay.payloads.list_checks import is_title
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.registry import Registry
from tabrelay.system.relay_records import DECLARED, HELD, KNOWN
from tabserver.wire.names import INSTANCE_SEPARATOR

ONLINE: Final = "online"
IDLE: Final = "idle"
OFFLINE: Final = "offline"
STATES: Final = (ONLINE, IDLE, OFFLINE)


def describe(registry: Registry, base_url: str, may_see: Callable[[str], bool], now: float) -> list[dict[str, Any]]:
    """One row per server; browsers that share a name are inside its row."""
    return list(iter_rows(registry, base_url, may_see, now))


def iter_rows(
    registry: Registry, base_url: str, may_see: Callable[[str], bool], now: float
) -> Generator[dict[str, Any], None, list[dict[str, Any]]]:
    """The same, row by row. Returns all rows."""
    found = []
    for entry in [
        entry for entry in registry.entries() if INSTANCE_SEPARATOR not in entry.name and may_see(entry.name)
    ]:
        found.append(_row(registry, entry, base_url, now))
        yield found[-1]
    return found


def encode_rows(rows: Iterable[dict[str, Any]]) -> Generator[None, None, bytes]:
    """A JSON list, encoded row by row. Returns its text."""
    texts = []
    for row in rows:
        texts.append(orjson.dumps(row))
        yield
    return b"[" + b",".join(texts) + b"]"


def server_state(registry: Registry, entry: ServerEntry, *, counts_nodes: bool) -> str:
    """What this relay has of the server. `counts_nodes`: also a browser at another relay counts as held."""
    for one in (entry, *(registry.shared_names.members(entry.name) if entry.instances is not None else ())):
        if one.peer is not None and (counts_nodes or one.peer.kind is not PeerKind.NODE):
            return HELD
    return DECLARED if registry.is_declared(entry.name) else KNOWN


def _row(registry: Registry, entry: ServerEntry, base_url: str, now: float) -> dict[str, Any]:
    members = registry.shared_names.members(entry.name) if entry.instances is not None else []
    info = entry.catalogue.initialize.get("serverInfo", {}) if entry.catalogue else {}
    presence = _presence(entry, base_url, now, state_of(registry, entry))
    flaws = [flaw for one in (entry, *members) for found in one.flaws.values() for flaw in found.values()]
    row = {
        "name": entry.name,
        **presence,
        # The lists may be out of date: the last browser sent them.
        "stale": entry.catalogue is not None and not (presence["state"] != OFFLINE and entry.is_fresh),
        "title": next((text for key in ("title", "name") if is_title(text := info.get(key)) and text), None),
        "tools": [
            {key: tool[key] for key in ("name", "title", "description") if key in tool}
            for tool in (entry.catalogue.tools if entry.catalogue else ())
        ],
        "left_out": [{"name": flaw.name, "why": flaw.why} for flaw in flaws if flaw.is_left_out],
        "suspicious": [{"name": flaw.name, "why": flaw.why} for flaw in flaws if not flaw.is_left_out],
        # Differences from the first use, until the user accepts them.
        "drift": next((one.drift.describe() for one in (entry, *members) if one.drift), None),
        "in_flight": sum(_in_flight(one) for one in (entry, *members)),
        **(entry.connector.describe() if entry.connector is not None else {"kind": "browser"}),
    }
    if entry.instances is not None:
        front = registry.shared_names.destination(entry.name)
        return row | {"instances": [_instance(one, base_url, now, one.name == front) for one in members]}
    return row | (_browser(entry, now) if entry.connector is None else {})


def _instance(entry: ServerEntry, base_url: str, now: float, is_front: bool) -> dict[str, Any]:
    """`front`: this browser receives requests for the name."""
    return {
        "id": entry.name.partition(INSTANCE_SEPARATOR)[2],
        **_presence(entry, base_url, now, _state_of_browser(entry)),
        **_browser(entry, now),
        "front": is_front and _is_up(entry),
        "last_used_s": round(now - entry.last_used, 1) if entry.last_used is not None else None,
        "in_flight": _in_flight(entry),
    }


def state_of(registry: Registry, entry: ServerEntry) -> str:
    """Online: its calls are answered. Idle: its browser is connected, and no tab can answer, only what runs in the
    worker. Offline: nothing is connected."""
    if entry.instances is None:
        return _state_of_browser(entry)
    states = {_state_of_browser(one) for one in registry.shared_names.members(entry.name)}
    if not entry.up.is_set():
        return OFFLINE
    return IDLE if IDLE in states and ONLINE not in states else ONLINE


def _state_of_browser(entry: ServerEntry) -> str:
    if not _is_up(entry):
        return OFFLINE
    # defence: a server whose tabs can't answer is not online
    return IDLE if entry.is_awake is False else ONLINE


def _presence(entry: ServerEntry, base_url: str, now: float, state: str) -> dict[str, Any]:
    since = entry.idle_since if state == IDLE and entry.idle_since is not None else entry.since
    return {
        "state": state,
        "since_s": round(now - since, 1) if state != OFFLINE and since is not None else None,
        "last_seen_s": round(now - entry.last_seen, 1) if state == OFFLINE and entry.last_seen else None,
        "mcp_url": f"{base_url}/{entry.name}",
        "calls": entry.calls,
    }


def _browser(entry: ServerEntry, now: float) -> dict[str, Any]:
    tabs = [
        {"id": tab.id, "title": tab.title, "visible": tab.is_visible, **({"url": tab.url} if tab.url else {})}
        for tab in entry.tabs
    ]
    return {"browser": entry.browser, "tabs": tabs, "tasks": [task.row(now) for task in entry.tasks]}


def only_own_tasks(rows: list[dict[str, Any]], principal: str) -> None:
    """Leave the tasks of other principals out of the rows."""
    for row in rows:
        for browser in (row, *row.get("instances", ())):
            # defence: tasks of another principal in the status
            if "tasks" in browser:
                browser["tasks"] = [task for task in browser["tasks"] if task["principal"] == principal]


def _is_up(entry: ServerEntry) -> bool:
    return entry.peer is not None and entry.peer.is_up


def _in_flight(entry: ServerEntry) -> int:
    return entry.peer.in_flight if entry.peer is not None else 0
