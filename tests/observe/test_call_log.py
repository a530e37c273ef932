"""Call log: its lines, its permissions, its cost and its bounds."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import stat
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tabrelay.calls.calls import Call
from tabrelay.cli.main import main
from tabrelay.errors import ServerOffline
from tabrelay.observe import call_log as call_log_module
from tabrelay.observe.call_log import MAX_ARGUMENTS, MAX_RECENT, MAX_WAITING, CallLog
from tabrelay.observe.log_file import PrivateRotatingFile
from tabrelay.system import private_files
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.bridge_harness import until
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

CALLER = Caller(era=Era.MODERN, version="2026-07-28", principal="token:ci", client={"name": "agent", "version": "2"})
SECRET = "tr_" + "s" * 43


def call(arguments: object = None, name: str = "add") -> Call:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return Call("c", 1, "tools/call", json.dumps(message), CALLER)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Splits at line feeds only."""
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def calls_file(relay: RunningRelay) -> Path:
    return relay.settings.home / "log" / f"calls-{relay.port}.log"


async def test_every_call_is_one_line_with_who_what_when_and_how_it_ended(tmp_path: Path) -> None:
    before = time.time()
    async with RunningRelay(tmp_path, away_wait_s=0.1, servers=("absent",)) as relay:
        named = relay.tokens.issue_named("ci", ["call"], servers=["notes"])

        def answer(worker: SyntheticWorker, event: Any, message: dict[str, Any]) -> None:
            worker.answer(event, {"content": [], "isError": message["params"]["name"] == "broken"})

        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            worker.on_call = answer
            await relay.has_read("notes")
            await relay.call("notes", "echo", {"said": "what was asked"})
            await relay.call("notes", "broken")
            relay.http.headers["Authorization"] = f"Bearer {named}"
            await relay.call("notes", "echo")
        relay.http.headers["Authorization"] = f"Bearer {relay.token}"
        relay.tokens.revoke(lambda grant: True)
        await relay.http.post("/absent", **relay.modern("tools/call", {"name": "x", "arguments": {}}))
    path = calls_file(relay)
    first, broken, by_name, absent = rows(path)
    assert (first["server"], first["method"], first["name"]) == ("notes", "tools/call", "echo")
    assert (first["outcome"], first["client"]) == ("ok", "test 1")
    assert broken["outcome"] == "tool_error"
    assert first["principal"].startswith("token:") and by_name["principal"] == "token:ci"
    assert absent["outcome"] == "server_offline" and "absent" in absent["why"]
    assert before - 1 < time_of(first) < time.time() + 1 and first["ms"] >= 0
    assert "what was asked" not in path.read_text()  # arguments only with the setting
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def time_of(row: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(row["time"]).timestamp()


async def test_a_client_that_disconnects_is_written_down_as_such(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = lambda worker, event, message: None
        await relay.has_read("notes")
        asking = asyncio.create_task(relay.call("notes", "echo"))
        await worker.until(lambda: bool(worker.calls))
        asking.cancel()
        await until(lambda: calls_file(relay).is_file())
    assert [row["outcome"] for row in rows(calls_file(relay))] == ["cancelled"]


async def test_arguments_are_there_if_wanted_without_secrets_and_bounded(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.log", 1 << 20, 1, with_arguments=True)
    log.record("notes", call({"a": 1, "b": [f"Bearer {SECRET}"], SECRET: 2}), 0.01, (None, "{}"))
    log.record("notes", call({"text": "x" * 100_000}), 0.01, (None, "{}"))
    log.flush()
    small, large = rows(tmp_path / "calls.log")
    assert small["arguments"] == {"a": 1, "b": ["Bearer [redacted]"], "[redacted]": 2}
    assert len(large["arguments"]) == MAX_ARGUMENTS and large["arguments_size"] > 100_000
    assert SECRET not in (tmp_path / "calls.log").read_text()


async def test_arguments_of_what_has_no_name_yet_are_not_written_either(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.log", 1 << 20, 1)
    log.record("notes", call({"said": "what was asked"}), 0.01, (None, "{}"))
    log.flush()
    assert [row["name"] for row in rows(tmp_path / "calls.log")] == ["add"]
    assert "what was asked" not in (tmp_path / "calls.log").read_text()


async def test_what_is_called_secret_and_what_would_forge_a_line_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "calls.log"
    log = CallLog(path, 1_000_000, 2, with_arguments=True)
    hidden = {"password": "a", "API_key": ["b"], "deep": [{"access-token": "c", "Authorization": {"x": "d"}}]}
    log.record(
        "notes", call({**hidden, "user": "ann", "note": "\u2028"}, "n\x1b[2J\u202e\n{}\u2028\x85"), 0.1, (None, "{}")
    )
    # A secret that is truncated with a long name is redacted as a whole.
    log.record("notes", call({}, "x" * 190 + " " + SECRET), 0.1, (None, "{}"))
    log.flush()
    first, second = rows_of(path)
    assert first["name"] == r"n\x1b[2J\u202e\n{}\u2028\x85"
    gone = "[redacted]"
    assert first["arguments"]["deep"] == [{"access-token": gone, "Authorization": gone}]
    assert (first["arguments"]["password"], first["arguments"]["API_key"], first["arguments"]["user"]) == (
        gone,
        gone,
        "ann",
    )
    assert "tr_" not in second["name"]
    again = CallLog(path, 1_000_000, 2)
    assert len(again.recent("")["calls"]) == 2


async def test_the_file_is_rotated_when_it_is_full_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.log", 2_000, 2)
    for number in range(200):
        log.record("notes", call(name=f"tool{number}"), 0.001, (None, "{}"))
    log.flush()
    assert sorted(sizes(tmp_path)) == ["calls.log", "calls.log.1", "calls.log.2"]
    assert all(size <= 2_000 for size in sizes(tmp_path).values())
    assert rows(tmp_path / "calls.log")[-1]["name"] == "tool199"


async def test_a_link_in_place_of_the_call_log_is_not_written_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "profile"
    target.write_text("precious\n")
    (tmp_path / "calls.log").symlink_to(target)
    log = CallLog(tmp_path / "calls.log", 2_000, 2)
    for _ in range(2):
        log.record("notes", call(), 0.001, (None, "{}"))
        log.flush()
    assert target.read_text() == "precious\n"
    assert not log.recent("")["is_on"]
    assert caplog.text.count("is a link") == 1


def write(log: CallLog, *names: str) -> None:
    for name in names:
        log.record("notes", call(name=name), 0.001, (None, "{}"))
    log.flush()
    log._thread = log._timer = None


async def test_what_a_full_disk_did_not_take_is_counted_and_spoils_no_other_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "calls.log"
    log = CallLog(path, 1 << 20, 2)
    write(log, "first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As when the disk is full: half of a line still fits.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, hard))
    try:
        write(log, "lost-1", "lost-2")
        write(log, "lost-3")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    write(log, "last")
    first, torn, *others = path.read_text().splitlines()
    assert (json.loads(first)["name"], len(torn)) == ("first", 50)
    assert [json.loads(line).get("name") or json.loads(line)["calls"] for line in others] == ["last", 3]
    assert log.lost == 3
    write(log, "later")
    assert rows_of_whole(path)[-1]["name"] == "later"
    assert caplog.text.count("can't be written any more") == 1


def rows_of_whole(path: Path) -> list[dict[str, Any]]:
    """Rows without the incomplete line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


async def test_a_directory_that_was_deleted_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "log" / "calls.log"
    log = CallLog(path, 1 << 20, 2)
    write(log, "before")
    shutil.rmtree(path.parent)
    write(log, "after")
    assert [row["name"] for row in rows(path)] == ["after"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert log.lost == 0


async def test_a_link_that_is_put_there_later_is_not_followed_and_lost_lines_are_counted(tmp_path: Path) -> None:
    path, target = tmp_path / "calls.log", tmp_path / "profile"
    target.write_text("precious\n")
    log = CallLog(path, 1 << 20, 2)
    write(log, "before")
    path.rename(tmp_path / "aside")
    path.symlink_to(target)
    write(log, "lost-1", "lost-2")
    assert target.read_text() == "precious\n"
    path.unlink()
    write(log, "after")
    assert [row.get("name") or row["calls"] for row in rows(path)] == ["after", 2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_pipe_in_place_of_the_call_log_is_neither_waited_for_nor_written_to(
    tmp_path: Path, is_read: bool
) -> None:
    path = tmp_path / "calls.log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if is_read else None
    log = CallLog(path, 1 << 20, 2)
    write(log, "secret")
    assert not log.recent("")["is_on"]
    if reader is not None:
        assert os.read(reader, 1000) == b""
        os.close(reader)


async def test_a_file_that_is_swapped_while_it_is_opened_is_the_one_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, theirs = tmp_path / "calls.log", tmp_path / "theirs"
    theirs.touch()
    path.hardlink_to(theirs)
    monkeypatch.setattr(private_files, "_is_ours", lambda found: found.st_ino != theirs.stat().st_ino)
    opened = os.open

    def swap(name: Any, flags: int, *args: Any, **more: Any) -> int:
        handle = opened(name, flags, *args, **more)
        if Path(name) == path and flags & os.O_WRONLY:
            path.unlink()
            os.mkfifo(path)
        return handle

    monkeypatch.setattr(os, "open", swap)
    log = CallLog(path, 1 << 20, 2)
    write(log, "secret")
    assert theirs.read_bytes() == b""
    assert not log.recent("")["is_on"]


async def test_two_that_write_and_put_the_same_file_aside_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.log"
    logs = [CallLog(path, 4_000, 3) for _ in range(2)]

    def many(log: CallLog) -> None:
        for number in range(100):
            log._write([json.dumps({"time": "t", "name": f"{number}-{each}"}) for each in range(5)], 0)

    await asyncio.gather(*(asyncio.to_thread(many, log) for log in logs))
    assert [log.lost for log in logs] == [0, 0]
    names = sorted(sizes(tmp_path))
    assert names == ["calls.log", "calls.log.1", "calls.log.2", "calls.log.3"]
    for name in names:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert rows(tmp_path / name)


class Interleaved:
    """Runs another process's step once, before the rename or deletion with this number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, turn: Callable[[], None]) -> None:
        self._left, self._turn, self.is_done = step, turn, False
        for name in ("rename", "replace", "remove", "unlink"):
            monkeypatch.setattr(os, name, self._after(getattr(os, name)))

    def _after(self, act: Callable[..., None]) -> Callable[..., None]:
        def step(*args: Any, **more: Any) -> None:
            self._left -= 1
            if self._left < 0 and not self.is_done:
                self.is_done = True
                self._turn()
            act(*args, **more)

        return step


def line(name: str, size: int = 0) -> str:
    return json.dumps({"time": "t", "name": name, "more": "." * size})


def names_in(folder: Path) -> dict[str, list[str]]:
    return {path.name: [row["name"] for row in rows(path)] for path in sorted(folder.iterdir())}


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a system without file locks."""
    monkeypatch.setitem(sys.modules, "fcntl", None)


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_process_that_finds_a_full_file_during_its_rotation_renames_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_locks: bool
) -> None:
    if not has_locks:
        without_locks(monkeypatch)
    for step in count():
        folder = tmp_path / str(step)
        one, other = (CallLog(folder / "calls.log", 1_000, 4) for _ in range(2))
        for number in range(3):
            one._write([line(f"old-{number}", 600)], 0)
        with monkeypatch.context() as patch:
            steps = Interleaved(patch, step, lambda other=other: other._write([line("other", 600)], 0))  # type: ignore[misc]
            one._write([line("one", 600)], 0)
        if not steps.is_done:
            break
        assert names_in(folder) == {
            "calls.log": ["one"],
            "calls.log.1": ["old-2", "other"],
            "calls.log.2": ["old-1"],
            "calls.log.3": ["old-0"],
        }
    assert step >= 3  # one for each file
    assert not caplog.text


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_file_that_was_rotated_after_it_was_found_full_is_not_rotated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool
) -> None:
    if not has_locks:
        without_locks(monkeypatch)
    one, other = (CallLog(tmp_path / "calls.log", 1_000, 3) for _ in range(2))
    one._write([line("old", 600)], 0)
    put_aside = PrivateRotatingFile.doRollover

    def late(file: PrivateRotatingFile) -> None:
        monkeypatch.undo()
        if not has_locks:
            without_locks(monkeypatch)
        other._write([line("other", 600)], 0)
        put_aside(file)

    monkeypatch.setattr(PrivateRotatingFile, "doRollover", late)
    one._write([line("one", 600)], 0)
    assert names_in(tmp_path) == {"calls.log": ["other", "one"], "calls.log.1": ["old"]}


async def test_calls_that_end_faster_than_the_disk_takes_them_are_counted_and_none_waits(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.log", 1 << 24, 1)
    for _ in range(MAX_WAITING + 7):
        log.record("notes", call(), 0.001, (None, "{}"))
    assert log._size < call_log_module.MAX_WAITING_SIZE
    large = call("x" * (call_log_module.MAX_WAITING_SIZE + 1))
    log.record("notes", large, 0.001, (None, "{}"))
    log.flush()
    *written, last = rows(tmp_path / "calls.log")
    assert len(written) == MAX_WAITING
    assert (last["outcome"], last["calls"]) == ("left_out", 8)


async def test_a_place_that_cannot_be_written_costs_no_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    nowhere = str(tmp_path / "file" / "calls.log")
    async with (
        RunningRelay(tmp_path / "home", call_log=nowhere) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
    ):
        await relay.has_read("notes")
        assert (await relay.call("notes", "echo")).status_code == 200
        assert (await relay.call("notes", "echo")).status_code == 200


async def test_the_relays_page_gets_the_last_calls_only_when_there_are_new_ones(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        await relay.has_read("notes")
        await relay.call("notes", "echo")

        said: dict[str, Any] = {}
        async with asyncio.timeout(BOUND_S):
            while not said.get("calls"):
                said = (await relay.http.get("/-/calls")).json()
                await asyncio.sleep(0.02)
        assert [row["name"] for row in said["calls"]] == ["echo"]
        assert said["is_on"] and not said["has_arguments"]
        assert (await relay.http.get("/-/calls", params={"since": said["mark"]})).json()["calls"] is None
        # A token for `call` or `serve` only can't read the calls of others.
        for scopes in (["call"], ["serve"]):
            token = relay.tokens.issue_named(scopes[0], scopes)
            answer = await relay.http.get("/-/calls", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 403


async def test_a_restarted_relay_shows_the_last_calls(tmp_path: Path) -> None:
    log = CallLog(tmp_path / "calls.log", 1 << 20, 1)
    for number in range(MAX_RECENT + 5):
        log.record("notes", call(name=f"tool{number}"), 0.001, ServerOffline("It is not there."))
    log.flush()
    with (tmp_path / "calls.log").open("a") as file:
        file.write("not JSON\n[1]\n")
    again = CallLog(tmp_path / "calls.log", 1 << 20, 1)
    known = again.recent("")["calls"]
    assert [row["name"] for row in known] == [f"tool{number}" for number in range(5, MAX_RECENT + 5)]
    assert again.recent("")["mark"] != log.recent("")["mark"]


async def test_a_disabled_call_log_writes_nothing_and_the_page_shows_it(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, call_log="none") as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        await relay.has_read("notes")
        await relay.call("notes", "echo")
        said = (await relay.http.get("/-/calls")).json()
    assert said == {"is_on": False, "has_arguments": False, "mark": "", "calls": []}
    assert not (tmp_path / "log").exists()


async def test_on_the_command_line_each_call_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = CallLog(tmp_path / "log" / "calls-4747.log", 1 << 20, 1, with_arguments=True)
    log.record("notes", call({"a": 1}), 0.0123, (None, "{}"))
    log.record("notes", call(name="gone"), 0.001, ServerOffline("It is not there."))
    log.flush()
    assert main(["logs", "--calls", "--home", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith('notes tools/call add by token:ci (agent 2): ok in 12.3 ms {"a": 1}')
    assert "server_offline in 1.0 ms" in second and second.endswith("(It is not there.)")
    assert main(["logs", "--calls", "--json", "-n", "1", "--home", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "gone"
