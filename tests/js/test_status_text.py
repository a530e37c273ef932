"""What `<tabrelay-status>` shows of a connection: its text, its lamp, the reason and the button that acts on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.js.test_reasons import evaluated

STATE = {
    "state": "connected",
    "why": None,
    "code": None,
    "message": None,
    "todo": None,
    "help": None,
    "server": "notes",
}
STEPS: list[tuple[dict[str, Any], dict[str, Any] | None, str, str, str]] = [
    # state, start of Python, label, lamp, button
    ({"state": "connecting"}, None, "Connecting", "busy", ""),
    (
        {"state": "connecting"},
        {"stage": "download", "loaded": 2_140_000, "total": 7_000_000},
        "Starting, 2.1 of 7.0 MB",
        "busy",
        "",
    ),
    ({"state": "connecting"}, {"stage": "download", "loaded": 2_140_000}, "Starting", "busy", ""),
    ({"state": "connecting"}, {"stage": "ready"}, "Connecting", "busy", ""),
    ({}, {"stage": "ready"}, "Connected", "ok", ""),
    ({"code": "client_outdated", "message": "Old. Update."}, None, "Connected", "ok", ""),
    ({"state": "waiting", "code": "pairing", "message": "Code."}, None, "Waiting for approval", "busy", ""),
    ({"state": "waiting", "code": "relay_down", "message": "Gone."}, None, "Not connected", "problem", "Connect"),
    ({"state": "stopped", "code": "closed", "message": "Closed."}, None, "Not connected", "problem", "Connect"),
    ({"state": "stopped", "code": "forbidden", "message": "No."}, None, "Not connected", "problem", "Ask again"),
    ({"state": "stopped", "code": "version", "message": "Old."}, None, "Not connected", "problem", "Reload"),
    ({"state": "stopped", "code": "insecure_page", "message": "http."}, None, "Not connected", "problem", ""),
    ({"state": "stopped", "code": "of_a_newer_client", "message": "?"}, None, "Not connected", "problem", "Connect"),
]


async def described(connections: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await evaluated(
        "client/status_text.js", f"{json.dumps(connections)}.map((each) => m.describeStatus(each ?? undefined, 'app'))"
    )
    return found


async def test_each_state_has_a_label_a_lamp_and_the_button_that_helps() -> None:
    given = [{"state": STATE | state, "boot": boot, "catalogue": None} for state, boot, *_ in STEPS]
    found = [(text["label"], text["lamp"], text["action"]) for text in await described(given)]
    assert found == [tuple(row) for _, _, *row in STEPS]


async def test_the_reason_is_in_two_parts_what_happened_and_what_to_do() -> None:
    message = "No relay answers. Start it with: tabrelay serve."
    todo = "Start it with: tabrelay serve."
    down = STATE | {"state": "waiting", "code": "relay_down", "message": message}
    new_client = {"todo": todo, "help": "TR421"}
    new, old, fine = await described(
        [{"state": state, "boot": None, "catalogue": None} for state in (down | new_client, down, STATE)]
    )
    assert new["reason"] == {"happened": "No relay answers.", "todo": todo, "help": "TR421"}
    assert old["reason"] == {"happened": message, "todo": "", "help": ""}, "of an older copy of the client"
    assert fine["reason"] is None


async def test_the_number_of_tabs_is_shown_while_it_is_connected() -> None:
    counts = [{"tabs": 1}, {"tabs": 12}, {}, None]
    given = [{"state": STATE, "boot": None, "catalogue": catalogue} for catalogue in counts]
    away = {"state": STATE | {"state": "waiting"}, "boot": None, "catalogue": {"tabs": 2}}
    assert [text["tabs"] for text in await described([*given, away])] == ["1 tab", "12 tabs", "", "", ""]


async def test_a_page_without_a_connection_has_a_reason_and_a_button_to_connect() -> None:
    [text] = await described([None])
    assert (text["label"], text["server"], text["action"]) == ("Not connected", "app", "Connect")
    assert "connect()" in text["reason"]["happened"]
