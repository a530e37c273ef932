"""Several relays of one user: which of them a command reaches, and how one of them stops or restarts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest

from tabrelay.cli import acp, relay_choice
from tabrelay.cli.main import main
from tabrelay.config.settings import Settings
from tabrelay.server.runner import bind
from tabrelay.system import process_identity, relay_records
from tabrelay.system.process_identity import ProcessIdentity
from tests.support.cpython_worker import CPythonWorker
from tests.support.demo import Demo
from tests.support.running_relay import RunningRelay, record_of
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Pair:
    """Two relays with one state directory: the first has a page, the second only names."""

    home: Path
    first: RunningRelay
    second: RunningRelay

    async def run(self, *words: str) -> int:
        return await asyncio.to_thread(main, [*words, "--home", str(self.home)])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    home = tmp_path / "home"
    async with (
        RunningRelay(home, servers=("both",), is_registered=True) as first,
        RunningRelay(home, servers=("both", "declared"), is_registered=True) as second,
        CPythonWorker(first.url, first.token, "notes"),
    ):
        await first.has_read("notes")
        await until(lambda: any(record.rank("notes") == 0 for record in relay_records.read(home)))
        yield Pair(home, first, second)


class Keyboard(StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_command_reaches_the_relay_that_has_the_server(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert await pair.run("tools", "notes", "--json") == 0
    capsys.readouterr()
    assert await pair.run("tools", f"{pair.first.url}/notes") == 0, "the URL of a local relay needs no token flag"
    settings = Settings(home=pair.home)
    args = main_args(pair.home)
    assert relay_choice.base(args, settings, "notes") == pair.first.url
    assert relay_choice.base(args, settings, "declared") == pair.second.url
    assert relay_choice.base(args, settings, "notes~laptop") == pair.first.url


async def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(
    pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port = str(pair.first.port)
    for given, hint in (("Notes", ["Did you mean notes?"]), ("nots", ["Did you mean notes?"]), ("xyz", [])):
        assert await pair.run("tools", given, "-p", port) == 4
        assert capsys.readouterr().err.splitlines()[1:-1] == hint
    assert await pair.run("tools", "both", "-p", port) == 0
    said = capsys.readouterr()
    assert said.out == "The server has no tools.\n" and re.fullmatch(r"Is its page open\? See: .* status\n", said.err)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await pair.run("install", "cursor", "nots") == 0
    assert capsys.readouterr().err == 'No running relay has a server "nots". Did you mean notes?\n'
    assert await pair.run("install", "cursor", "notes") == 0
    assert capsys.readouterr().err == ""


def main_args(home: Path, **more: object):  # type: ignore[no-untyped-def]
    import argparse

    return argparse.Namespace(**{"host": None, "port": None, "home": home, "json": None, **more})


async def test_where_two_have_it_the_error_lists_both_with_their_flags(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await pair.run("call", "both", "x") == 2
    *lines, more = capsys.readouterr().err.splitlines()
    assert more == "Help: tabrelay help TR303"
    assert lines[0] == '2 relays have "both". Name one of them with a flag:'
    assert sorted(line.split()[:3] for line in lines[1:]) == sorted(
        ["--port", str(relay.port), relay.url] for relay in (pair.first, pair.second)
    )
    assert await pair.run("logs", "-p", str(pair.first.port)) == 1
    assert f"relay-{pair.first.port}.log" in capsys.readouterr().err


async def test_on_a_terminal_the_user_is_asked_which_relay(
    pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("nine\n2\n"))
    monkeypatch.setattr("sys.stderr", printed := Keyboard())
    found = [record.url for record in relay_records.read(pair.home)]
    args, settings = main_args(pair.home), Settings(home=pair.home)
    assert await asyncio.to_thread(relay_choice.base, args, settings, "both") == found[1]
    assert printed.getvalue().count("Which relay? [1-2]") == 2


async def test_status_shows_all_relays_and_a_script_names_one(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert await pair.run("status") == 0
    text = capsys.readouterr().out
    assert pair.first.url in text and pair.second.url in text
    assert await pair.run("status", "--all", "--json") == 0
    found = {status["url"]: status for status in json.loads(capsys.readouterr().out)["relays"]}
    assert set(found) == {pair.first.url, pair.second.url}
    assert found[pair.first.url]["process"] == os.getpid()
    assert await pair.run("status", "--json") == 2
    assert "--port" in capsys.readouterr().err
    assert await pair.run("status", "--json", "--port", str(pair.second.port)) == 0
    assert json.loads(capsys.readouterr().out)["url"] == pair.second.url


async def test_the_conductor_prints_which_of_several_relays_it_uses(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    client = acp._relay_client(main_args(pair.home, server=[]), Settings(home=pair.home))
    newest = relay_records.read(pair.home)[0].url
    assert [client.base(), client.base()] == [newest, newest]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"2 relays run; {newest} is used. To name one: ")
    assert all(f"--port {relay.port}" in line for relay in (pair.first, pair.second))
    assert acp._relay_client(main_args(pair.home, server=["notes"]), Settings(home=pair.home)).base() == pair.first.url
    assert capsys.readouterr().err == "", "only one of the relays has the server"
    app = write(pair.home, ProcessIdentity.of(os.getpid()), 9, app_url="http://127.0.0.1:8")
    for port in (8, 9):
        args, settings = main_args(pair.home, server=[], port=port), Settings(home=pair.home, port=port)
        assert acp._relay_client(args, settings).base() == "http://127.0.0.1:9", "its own port has the token's routes"
    app.unlink()


async def test_names_go_when_their_relay_stops_and_the_others_stay(pair: Pair) -> None:
    await pair.second.stop()
    assert [record.url for record in relay_records.read(pair.home)] == [pair.first.url]
    assert relay_choice.base(main_args(pair.home), Settings(home=pair.home), "both") == pair.first.url


# -- records -----------------------------------------------------------------------------------------------------------


def write(home: Path, process: ProcessIdentity, port: int = 9, **more: object) -> Path:
    record = record_of(Settings(home=home, port=port), process, **more)
    path = relay_records.path_of(home, record.id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps({relay_records.ABOUT: record.about(), **record.servers}))
    return path


def test_the_record_of_a_killed_relay_is_removed_also_when_its_pid_has_another_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        gone = ProcessIdentity.of(ended.pid)
    here = ProcessIdentity.of(os.getpid())
    paths = [write(tmp_path, gone), write(tmp_path, replace(here, started="another boot 1"))]
    kept = write(tmp_path, here)
    assert [record.id for record in relay_records.read(tmp_path)] == [kept.stem]
    assert not any(path.exists() for path in paths)


def test_a_pid_of_another_container_is_unknown_and_its_record_expires(tmp_path: Path) -> None:
    process = replace(ProcessIdentity.of(os.getpid()), namespace="pid:[1]")
    assert process.is_running is None
    path = write(tmp_path, process)
    assert len(relay_records.read(tmp_path)) == 1
    week_ago = time.time() - relay_records.UNKNOWN_LIFE_S - 60
    os.utime(path, (week_ago, week_ago))
    assert relay_records.read(tmp_path) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"-": {"url": 1}}', "\udcff"])
def test_a_record_that_is_damaged_is_ignored(tmp_path: Path, text: str) -> None:
    relay_records.folder(tmp_path).mkdir(mode=0o700)
    (relay_records.folder(tmp_path) / "x.json").write_bytes(text.encode(errors="surrogateescape"))
    assert relay_records.read(tmp_path) == []


async def test_a_process_that_does_not_prove_itself_gets_no_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    write(tmp_path, ProcessIdentity.of(os.getpid()), port)
    (tmp_path / "token").write_text("tr_" + "x" * 43)
    assert await asyncio.to_thread(main, ["stop", "--home", str(tmp_path)]) == 3
    assert f"stop --port {port} --force" in capsys.readouterr().err


def test_a_relay_in_another_container_gets_no_signal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: sent.append(pid))
    write(tmp_path, replace(ProcessIdentity.of(os.getpid()), namespace="pid:[1]"))
    assert main(["stop", "--home", str(tmp_path), "--force"]) == 1
    assert sent == [] and "another container" in capsys.readouterr().err


def test_the_start_time_of_a_process_stays_and_ends_with_it() -> None:
    mine = process_identity.start_time(os.getpid())
    assert mine and mine == process_identity.start_time(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_identity.start_time(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_identity.start_time(child.pid) is None, "a process that nothing has waited for is gone, too"
    assert process_identity.start_time(0) is None


# -- stop and restart --------------------------------------------------------------------------------------------------


async def test_a_relay_restarts_in_its_process_and_then_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*words: str) -> int:
        return await asyncio.to_thread(main, [*words, "--home", str(tmp_path)])

    async with Demo(tmp_path, "notes", verb="serve") as relay, RunningRelay(tmp_path, is_registered=True) as other:
        before = {record.id: record for record in relay_records.read(tmp_path)}
        assert await run("restart", "notes") == 0
        assert capsys.readouterr().out == f"Restarted: http://127.0.0.1:{relay.port}\n"
        after = [record for record in relay_records.read(tmp_path) if record.id not in before]
        assert [(record.port, record.process.pid) for record in after] == [(relay.port, relay.pid)]
        assert await run("stop", "--port", str(relay.port)) == 0
        assert await relay.ended() == 0
        assert capsys.readouterr().out == f"Stopped: http://127.0.0.1:{relay.port}\n"
        assert [record.url for record in relay_records.read(tmp_path)] == [other.url]
        assert await run("stop", "gone") == 1
        assert 'has a server "gone"' in capsys.readouterr().err


async def test_a_relay_in_development_is_found_by_each_of_its_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    (folder := tmp_path / "app").mkdir()

    async def run(*words: str) -> int:
        return await asyncio.to_thread(main, [*words, "--home", str(home)])

    async with (
        Demo(home, str(folder), "--server", "notes", verb="dev") as relay,
        RunningRelay(home, is_registered=True),
    ):
        app_url = relay.url.rstrip("/")
        own = next(record for record in relay_records.read(home) if record.app_url == app_url)
        assert own.ports == {relay.port, own.port} and own.port != relay.port
        for port in (relay.port, own.port):
            assert await run("status", "--port", str(port)) == 0
            text = capsys.readouterr().out
            assert f"{app_url}/, its own pages at {own.url}" in text.splitlines()[0]
            assert f"{app_url}/notes" in text
        assert await run("status", "--json", "--port", str(relay.port)) == 0
        assert json.loads(capsys.readouterr().out)["app_url"] == app_url
        assert await run("restart", "--port", str(relay.port)) == 0
        assert await run("stop", "--port", str(relay.port)) == 0
        assert await relay.ended() == 0
        assert capsys.readouterr().out == f"Restarted: {app_url}\nStopped: {app_url}\n"


async def test_a_relay_that_hangs_is_ended_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Demo(tmp_path, "notes", verb="serve") as relay:
        os.kill(relay.pid, signal.SIGSTOP)
        words = ["stop", "--home", str(tmp_path)]
        assert await asyncio.to_thread(main, words) == 3
        assert "does not answer" in capsys.readouterr().err
        assert await asyncio.to_thread(main, [*words, "--force"]) == 0
        assert await relay.ended() == -signal.SIGKILL
        assert relay_records.read(tmp_path) == []


async def test_paired_pages_are_listed_while_a_relay_of_another_state_directory_has_the_default_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RunningRelay(tmp_path / "home"):
        pass  # it leaves a token
    async with RunningRelay(tmp_path / "other") as other:
        monkeypatch.setenv("TABRELAY_PORT", str(other.port))
        home = ["--home", str(tmp_path / "home")]
        assert await asyncio.to_thread(main, ["pairs", *home]) == 0
        assert capsys.readouterr().out == "No page is paired.\n"
        assert await asyncio.to_thread(main, ["pairs", *home, "--port", str(other.port)]) == 1
        assert "does not know this token" in capsys.readouterr().err
