"""The log file, JSON on stderr, `tabrelay logs` and `tabrelay status`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tabrelay.cli.logs import follow
from tabrelay.cli.main import main
from tabrelay.cli.status import text as status_text
from tabrelay.config.settings import Settings
from tabrelay.observe import log_setup
from tabrelay.observe.log_file import PrivateRotatingFile
from tests.support.cpython_worker import CPythonWorker
from tests.support.demo import Demo
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    names = [root, *(logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"))]
    handlers, levels = root.handlers[:], [logger.level for logger in names]
    yield
    for handler in root.handlers:
        if isinstance(handler, PrivateRotatingFile):
            handler.close()
    root.handlers[:] = handlers
    for logger, level in zip(names, levels, strict=True):
        logger.setLevel(level)


def rows(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_object_a_line_without_secrets() -> None:
    stream = StringIO()
    log_setup.configure("info", stream, is_json=True)
    log = logging.getLogger("some.room")
    log.info("ä\nb %s", "tr_" + "x" * 20)
    try:
        raise ValueError("Bearer abcdefghijkl")
    except ValueError:
        log.exception("broken")
    first, second = rows(stream.getvalue())
    assert (first["level"], first["logger"], first["message"]) == ("info", "some.room", "ä\nb [redacted]")
    assert datetime.fromisoformat(first["time"]) > datetime.now(UTC) - timedelta(minutes=1)
    assert "Traceback" in second["exception"] and "abcdefghijkl" not in second["exception"]


def test_untrusted_text_is_one_line_and_moves_no_cursor() -> None:
    stream = StringIO()
    log_setup.configure("info", stream)
    logging.getLogger("some.room").info("%s left", "x\n12:00:00 INFO root: all is well\x1b[2J\x9b2J\u202e\u2028")
    [line] = stream.getvalue().split("\n")[:-1]
    assert line.endswith(r"x\n12:00:00 INFO root: all is well\x1b[2J\x9b2J\u202e\u2028 left")
    logging.getLogger("some.room").info("whose is eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl?")
    assert "eyJ" not in stream.getvalue()
    try:
        raise ValueError("its traceback keeps its lines")
    except ValueError:
        logging.getLogger("some.room").exception("broken")
    assert "\nTraceback" in stream.getvalue()


def test_the_file_has_more_than_stderr_and_is_for_this_user_only(tmp_path: Path) -> None:
    stream = StringIO()
    log_setup.configure("error", stream)
    path = log_setup.add_log_file(Settings(home=tmp_path, port=4711, log_level="error"))
    assert path == tmp_path / "log" / "relay-4711.log"
    logging.getLogger("x").info("in the file")
    logging.getLogger("x").debug("nowhere")
    assert [row["message"] for row in rows(path.read_text())] == ["in the file"]
    assert stream.getvalue() == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_log_file_in_another_directory_is_private_and_the_directory_is_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "relay.log").touch(0o644)
    for name in ("relay.log", "calls.log"):
        PrivateRotatingFile(shared / name, 1000, 1).close()
        assert stat.S_IMODE((shared / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_in_place_of_a_log_file_is_not_written_through(tmp_path: Path, is_there: bool) -> None:
    stream = StringIO()
    log_setup.configure("warning", stream)
    target, link = tmp_path / "profile", tmp_path / "log" / "relay-4747.log"
    if is_there:
        target.write_text("precious")
    link.parent.mkdir()
    link.symlink_to(target)
    assert log_setup.add_log_file(Settings(home=tmp_path)) is None
    assert "is a link" in stream.getvalue()
    assert target.exists() is is_there and (not is_there or target.read_text() == "precious")


def test_a_full_file_is_rotated_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    log_setup.configure("error", StringIO())
    path = log_setup.add_log_file(Settings(home=tmp_path, log_max=1000, log_keep=2))
    assert path is not None
    for number in range(100):
        logging.getLogger("x").info("%03d %s", number, "." * 50)
    files = log_setup.log_files(path)
    assert [file.name for file in files] == ["relay-4747.log.2", "relay-4747.log.1", "relay-4747.log"]
    assert all(file.stat().st_size <= 1000 and not file.stat().st_mode & 0o077 for file in files)
    numbers = [int(row["message"][:3]) for file in files for row in rows(file.read_text())]
    assert numbers == list(range(numbers[0], 100))


def test_a_file_that_another_relay_rotated_or_that_was_deleted_is_no_longer_written(tmp_path: Path) -> None:
    path = tmp_path / "relay.log"
    one, other = (PrivateRotatingFile(path, 1000, 2) for _ in range(2))

    def write(file: PrivateRotatingFile, message: str) -> None:
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, message, (), None))

    write(other, "first")
    write(one, "." * 995)
    assert (tmp_path / "relay.log.1").read_text() == "first\n"
    path.write_text("")
    write(other, "last")
    assert path.read_text() == "last\n"
    path.unlink()
    write(one, "again")
    assert path.read_text() == "again\n"
    one.close()
    other.close()


def test_without_rotated_files_a_full_one_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "relay.log"
    one, other = (PrivateRotatingFile(path, 1000, 0) for _ in range(2))
    for number in range(200):
        file = other if number % 3 == 0 else one
        file.handle(logging.LogRecord("x", logging.INFO, "", 0, f"{number:03} {'.' * 50}", (), None))
        assert path.stat().st_size <= 1000
    assert path.read_text().splitlines()[-1].startswith("199") and os.listdir(tmp_path) == ["relay.log"]
    one.close()
    other.close()


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    stream = StringIO()
    log_setup.configure("warning", stream)
    assert log_setup.add_log_file(Settings(home=tmp_path, log_file="none")) is None
    (tmp_path / "log").write_text("in the way")
    assert log_setup.add_log_file(Settings(home=tmp_path)) is None
    assert "No log file" in stream.getvalue()


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    stream = StringIO()
    log_setup.configure("warning", stream)
    log_setup.add_log_file(Settings(home=tmp_path, log_file="/dev/full"))
    for _ in range(3):
        logging.getLogger("x").warning("still here")
    assert stream.getvalue().count("still here") == 3
    assert stream.getvalue().count("can't be written any more") == 1


# -- tabrelay logs -----------------------------------------------------------------------------------------------------


def write(path: Path, *found: tuple[int, str, str]) -> None:
    """Write lines. Each row: minutes ago, level, message."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for minutes, level, message in found:
        when = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        lines.append(json.dumps({"time": when, "level": level, "logger": "a.b", "message": message}))
    path.write_text("".join(line + "\n" for line in lines))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    log = tmp_path / "log" / "relay-4747.log"
    write(log.with_name("relay-4747.log.1"), (100, "error", "old"), (90, "info", "older info"))
    write(log, (50, "warning", "warned"), (5, "info", "news"), (1, "trace", "detail"))
    with log.open("a") as file:
        file.write("not JSON\n")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ([], ["old", "older info", "warned", "news", "detail", "not JSON"]),
        (["-n", "2"], ["detail", "not JSON"]),
        (["-n", "0", "--level", "warning"], ["old", "warned"]),
        (["--since", "10min"], ["news", "detail", "not JSON"]),
        (["--since", "1h", "--level", "info"], ["warned", "news", "not JSON"]),
    ],
)
def test_logs_are_shown_by_number_level_and_age(
    flags: list[str], shown: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "--home", str(home), *flags]) == 0
    assert [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()] == shown
    assert main(["logs", "--home", str(home), "--json", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["message"] if line.startswith("{") else line for line in lines] == shown


def test_each_port_has_its_own_log_and_a_missing_one_is_reported(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "--home", str(home), "--port", "9999"]) == 1
    assert "relay-9999.log" in capsys.readouterr().err
    write(home / "log" / "relay-9999.log", (1, "info", "other"))
    assert main(["logs", "--home", str(home), "--port", "9999"]) == 0
    assert "other" in capsys.readouterr().out


def test_following_continues_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("shown\n")
    events: list[Any] = []

    def append(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    def rotate() -> None:
        append("last of the old\n")
        path.rename(tmp_path / "a.log.1")

    steps: list[Callable[[], None]] = [
        lambda: append("one\ntw"),
        lambda: append("o\n"),
        rotate,
        lambda: append("first of the new\n"),
    ]

    def pause(seconds: float) -> None:
        events.append(seconds)
        steps.pop(0)()

    lines = list(islice(follow(path, True, pause), 4))
    assert lines == ["one", "two", "last of the old", "first of the new"]
    assert list(islice(follow(tmp_path / "a.log", False, pause), 1)) == ["first of the new"]


async def test_a_real_relay_writes_it_and_the_verb_follows(tmp_path: Path) -> None:
    async with Demo(tmp_path, "notes", verb="serve") as relay:
        command = (sys.executable, "-m", "tabrelay", "logs", "-f", "-n", "0", "--home", str(tmp_path))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with CPythonWorker(relay.url.partition("/#")[0].rstrip("/"), relay.token, "notes"):
                async with asyncio.timeout(BOUND_S):
                    while b"notes: connected" not in await process.stdout.readline():
                        pass
        finally:
            process.terminate()
            await process.wait()
    [log] = (tmp_path / "log").glob("relay-*.log")
    assert relay.token not in log.read_text()


# -- tabrelay status ---------------------------------------------------------------------------------------------------


async def test_status_shows_the_relay_and_its_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*flags: str) -> str:
        assert main(["status", "--home", str(tmp_path), *flags]) == 0
        return capsys.readouterr().out

    async with (
        RunningRelay(tmp_path, servers=("idle",), is_registered=True) as relay,
        CPythonWorker(relay.url, relay.token, "notes"),
    ):
        await relay.has_read("notes")
        shown = await asyncio.to_thread(ask)
        assert (await asyncio.to_thread(ask, "--names")).split() == ["idle", "notes"]
        assert json.loads(await asyncio.to_thread(ask, "--json"))["url"] == relay.url
    assert relay.url in shown.splitlines()[0]
    lines = {line.split()[0]: line for line in shown.splitlines()[2:]}
    assert "offline" in lines["idle"] and "online for" in lines["notes"] and f"{relay.url}/notes" in lines["notes"]


def test_status_without_a_relay_prints_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--home", str(tmp_path), "--port", "9"]) == 3
    assert "Start one" in capsys.readouterr().err


def test_status_shows_running_calls_and_old_catalogues() -> None:
    row = {
        "name": "n",
        "state": "offline",
        "last_seen_s": 120,
        "tools": [{}, {}],
        "stale": True,
        "calls": 7,
        "in_flight": 2,
        "mcp_url": "u",
    }
    shown = status_text({"version": "1", "url": "u", "servers": [row]})
    assert "offline for 2 min  2 (old)  7 (2 running)" in shown
    upstream = {"connection": "waiting", "attempts": 5, "next_retry_s": 12.4, "error": "the program ended"}
    shown = status_text({"version": "1", "url": "u", "servers": [row | upstream]})
    assert "offline, waiting, 5 attempts, next in 12 s  2 (old)" in shown
    assert shown.endswith("\n\nn: the program ended")
    assert "No servers yet" in status_text({"version": "1", "url": "u", "servers": []})
