"""State files: written by a thread, changes in batches, atomic, and merged with rows of other processes."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tabrelay.system import state_file
from tabrelay.system.state_file import LEFTOVER_S, StateFile
from tests.support.waiting import until

MOST = 100_000


class Table:
    """Numbers by name. `before_row` is called in the thread that writes."""

    def __init__(self, path: Path, before_row: Callable[[], None] = lambda: None) -> None:
        self.values: dict[str, int] = {}
        self.writes = 0
        self.before_row = before_row
        self.file = StateFile(path, self, loss="numbers are lost", most_bytes=MOST)
        self.values.update(self.file.load())

    def put(self, key: str, value: int) -> None:
        self.values[key] = value
        self.file.save_soon()

    def rows(self) -> dict[str, int]:
        self.writes += 1
        return dict(self.values)

    def encode(self, row: int) -> Any:
        self.before_row()
        return {"n": row}

    def decode(self, key: str, value: Any) -> int | None:
        return int(value["n"])

    def accepts(self, key: str, ours: int | None, theirs: int) -> bool:
        return ours is None or theirs > ours

    def merge(self, theirs: Mapping[str, int]) -> None:
        self.values |= theirs


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def kept(path: Path) -> dict[str, int]:
    return Table(path).values


async def test_the_event_loop_goes_on_while_a_file_is_written(tmp_path: Path) -> None:
    may_go_on, threads = threading.Event(), set[int]()

    def wait() -> None:
        threads.add(threading.get_ident())
        may_go_on.wait(20)

    table = Table(tmp_path / "t.json", wait)
    table.put("a", 1)
    await until(lambda: bool(threads))  # the write has started, and this event loop runs
    table.put("b", 2)
    assert not (tmp_path / "t.json").exists()
    may_go_on.set()
    await until(lambda: kept(tmp_path / "t.json") == {"a": 1, "b": 2})
    assert threading.get_ident() not in threads


async def test_many_changes_are_few_writes_and_the_last_one_is_in_the_file(tmp_path: Path) -> None:
    may_go_on = threading.Event()

    def wait() -> None:
        may_go_on.wait(20)

    table = Table(tmp_path / "t.json", wait)
    for number in range(5_000):
        table.put("a", number)
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert table.writes == 1
    may_go_on.set()
    await until(lambda: kept(tmp_path / "t.json") == {"a": 4_999})
    assert table.writes == 2


async def test_after_a_long_write_there_is_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "LONGEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(state_file, "PAUSE", 1e9)
    table = Table(tmp_path / "t.json")
    table.put("a", 1)
    await until(lambda: kept(tmp_path / "t.json") == {"a": 1})
    await until(lambda: table.file._thread is None)
    table.put("a", 2)
    await asyncio.sleep(0)
    assert table.writes == 1
    # An ending process does not wait for it.
    table.file.flush()
    assert kept(tmp_path / "t.json") == {"a": 2}


async def test_a_flush_waits_for_the_write_that_is_under_way_and_writes_what_came_since(tmp_path: Path) -> None:
    may_go_on = threading.Event()
    has_begun = threading.Event()

    def wait() -> None:
        has_begun.set()
        may_go_on.wait(20)

    table = Table(tmp_path / "t.json", wait)
    table.put("a", 1)
    await asyncio.to_thread(has_begun.wait, 20)
    table.values["b"] = 2  # without a notification
    threading.Timer(0.05, may_go_on.set).start()
    table.file.flush()
    assert kept(tmp_path / "t.json") == {"a": 1, "b": 2}
    assert names(tmp_path) == ["t.json"]


def test_without_an_event_loop_a_change_is_written_at_once(tmp_path: Path) -> None:
    Table(tmp_path / "state" / "t.json").put("a", 1)
    assert kept(tmp_path / "state" / "t.json") == {"a": 1}
    assert (tmp_path / "state" / "t.json").stat().st_mode & 0o777 == 0o600


async def test_rows_of_another_process_are_kept_and_known_afterwards(tmp_path: Path) -> None:
    ours, theirs = Table(tmp_path / "t.json"), Table(tmp_path / "t.json")
    theirs.values |= {"a": 5, "b": 1, "c": 3}
    theirs.file.flush()
    ours.values |= {"b": 9}
    ours.put("a", 1)
    both = {"a": 5, "b": 9, "c": 3}
    await until(lambda: kept(tmp_path / "t.json") == both)
    await until(lambda: ours.values == both)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{\n"a": 1\n}\n', '{\n"a":{"n":1},\n"b":\n}\n', "\0"])
def test_a_damaged_file_is_no_reason_not_to_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    table = Table(tmp_path / "t.json")
    assert table.values == {}
    table.put("c", 3)
    assert kept(tmp_path / "t.json") == {"c": 3}


def test_a_file_of_one_line_is_read_and_rows_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"a":{"n":1},"b":{},"c":7,"d":{"n":"x"},"e":{"n":2}}')
    assert kept(tmp_path / "t.json") == {"a": 1, "e": 2}


def test_a_file_is_one_json_object(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.json")
    table.file.flush()
    assert orjson.loads((tmp_path / "t.json").read_bytes()) == {}
    table.put("a", 1)
    table.put("b", 2)
    assert orjson.loads((tmp_path / "t.json").read_bytes()) == {"a": {"n": 1}, "b": {"n": 2}}


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = {str(number): {"n": number} for number in range(MOST)}
    (tmp_path / "t.json").write_bytes(orjson.dumps(rows))
    assert kept(tmp_path / "t.json") == {}
    assert "at most 100,000 are read" in caplog.text


async def test_a_write_that_fails_is_logged_and_the_next_one_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    table = Table(tmp_path / "t.json", fail)
    table.put("a", 1)
    await until(lambda: "numbers are lost" in caplog.text)
    table.before_row = lambda: None
    table.put("b", 2)
    await until(lambda: kept(tmp_path / "t.json") == {"a": 1, "b": 2})
    assert names(tmp_path) == ["t.json"]
    (tmp_path / "gone").write_text("a file, where a directory should be")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        Table(tmp_path / "gone" / "t.json").file.flush()
    assert caplog.text.count("numbers are lost") == 1


def test_what_a_crash_left_behind_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "t.17-1.tmp", tmp_path / "t.18-1.tmp"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, old.stat().st_mtime - LEFTOVER_S - 60))
    Table(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == [new]
