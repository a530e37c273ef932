"""Rows of captured calls: how many are made in one callback of the event loop, and how much text each searches."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tabrelay.calls.calls import Call
from tabrelay.config.settings import Settings
from tabrelay.errors import RelayError
from tabrelay.observe.call_log import shown_text
from tabrelay.observe.capture import call_capture, rows
from tabrelay.observe.capture.call_capture import PER_BATCH, CallCapture
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.console import open_console
from tests.support.running_relay import RunningRelay

MANY = 3 * PER_BATCH + 50


def captured(capture: CallCapture, name: str = "add") -> None:
    client = {"name": f"client {name}", "version": name}
    caller = Caller(era=Era.MODERN, version="2026-07-28", principal="me", client=client, capabilities={})
    trace = capture.capture({}, "notes", {"method": "tools/call", "params": {}})
    assert trace is not None
    trace.lookup_started("notes", Call("c", 1, f"tools/{name}", "{}", caller, name=name))
    trace.ended(RelayError(f"Unknown tool {name}"), None)


async def test_rows_of_calls_that_changed_are_made_in_batches() -> None:
    capture = CallCapture(Settings(console_rows_s=10_000), "")
    reader = capture.open(lambda server: True)
    for _ in range(MANY):
        captured(capture)
    found = []
    while events := capture._collect():
        found.append([row["seq"] for event in events for row in event["rows"]])
    assert [len(each) for each in found] == [PER_BATCH] * 3 + [50]
    assert [seq for each in found for seq in each] == list(range(1, MANY + 1))
    capture.close(reader)
    capture.stop()


async def test_rows_that_a_console_has_missed_are_made_in_several_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    turn, made, timer = 0, Counter[int](), loop.call_soon(lambda: None)

    def count(*of: Any) -> rows.Row:
        made[turn] += 1
        return rows.row_of(*of)

    def tick() -> None:
        nonlocal turn, timer
        turn += 1
        timer = loop.call_soon(tick)

    monkeypatch.setattr(call_capture, "row_of", count)
    async with RunningRelay(tmp_path, inspect=True, console_rows_s=10_000) as relay:
        for _ in range(MANY):
            captured(relay.app._app._app._console._capture)
        timer = loop.call_soon(tick)
        async with open_console(relay, "?since=0") as console:
            await console.until(lambda: len(console.rows) == MANY)
        shown = (await relay.http.get("/-/console/calls?limit=400")).json()["rows"]
        assert [row["seq"] for row in shown] == list(range(MANY, 0, -1))
        timer.cancel()
    assert max(made.values()) <= PER_BATCH


def test_of_long_names_a_part_is_searched_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def shown(text: Any, most: int = 0) -> str:
        searched.append(len(text))
        return shown_text(text, most)

    monkeypatch.setattr(rows, "shown_text", shown)
    capture = CallCapture(Settings(), "")
    # The beginning of the last word that fits may be the beginning of a secret.
    captured(capture, "name " * 50 + "secret" * 50)
    [call] = capture.ring.newest()
    row = capture.row(call)
    assert row["name"] == "name " * 50 + "…" and "secret" not in str(row)
    assert max(searched) <= rows.MAX_NAME + 1
