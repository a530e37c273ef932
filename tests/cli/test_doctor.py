"""`tabrelay doctor`: every check finds the faults of its part and names the remedy."""

from __future__ import annotations

import json
import re
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tabrelay.cli import doctor, readiness
from tabrelay.cli.main import main
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "person"
    home.mkdir()
    for name, value in {"HOME": str(home), "BROWSER": "/bin/true"}.items():
        monkeypatch.setenv(name, value)
    # In its first call in a process, the module starts a program that asks the desktop, if there is one.
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    webbrowser.get()
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("XDG_CONFIG_HOME", "SSH_CONNECTION", "TABRELAY_ALLOW_ORIGINS"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


def ask(capsys: pytest.CaptureFixture[str], *argv: Any) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code, and the findings by their subject."""
    capsys.readouterr()
    code = main(["doctor", "--json", *map(str, argv)])
    found: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(capsys.readouterr().out):
        # Problems and steps have a code. To offer a tool, and a check that fails, have no entry.
        assert (
            row["help"] or row["state"] in ("ok", "note") or re.search(r"offers no tool\.$|ZeroDivision", row["text"])
        )
        found.setdefault(row["what"], []).append(row)
    return code, found


def states(found: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {what: rows[0]["state"] for what, rows in found.items()}


@pytest.mark.starts_process
def test_before_the_first_start_nothing_is_bad_and_two_steps_are_missing(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert code == 1
    assert [row["text"] for row in found["call"]] == ["No relay runs.", "No page is connected."]
    assert states(found) == {
        "program": "ok",
        "state": "note",
        "token": "note",
        "assets": "ok",
        "browser": "ok",
        "relay": "note",
        "clients": "note",
        "call": "missing",
    }
    assert "tabrelay serve" in found["relay"][0]["advice"]
    assert not (tmp_path / "none").exists(), "a doctor changes nothing"


@pytest.mark.starts_process
async def test_a_relay_its_servers_and_its_clients_are_found_well(
    tmp_path: Path, person: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    home, toolbox = tmp_path / "home", Toolbox()
    async with (
        RunningRelay(home, servers=("idle",), is_registered=True) as relay,
        CPythonWorker(relay.url, relay.token, "notes", toolbox),
    ):
        await relay.has_read("notes")
        code, found = await asyncio.to_thread(ask, capsys, "--home", home)
        assert (code, found["call"][0]["text"]) == (1, "notes is online and offers no tool.")

        @tool(toolbox=toolbox)
        def greet() -> str:
            return "hello"

        await relay.has_read("notes", lambda row: bool(row["tools"]))
        assert main(["install", "cursor", "notes", "gone", "--home", str(home)]) == 0
        code, found = await asyncio.to_thread(ask, capsys, "--home", home)
    assert code == 0
    assert (found["call"][0]["state"], found["call"][0]["advice"]) == ("ok", "tabrelay call notes greet")
    assert states(found)["relay"] == states(found)["token"] == states(found)["state"] == "ok"
    servers = {row["text"].partition(":")[0]: row["state"] for row in found["server"]}
    assert servers == {"notes": "ok", "idle": "note"}
    clients = {row["text"]: row["state"] for row in found["client"]}
    assert clients["Cursor: notes"] == "ok"
    assert [state for text, state in clients.items() if "'gone'" in text] == ["note"]


def test_what_is_open_to_others_is_bad(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "token").write_text("tr_" + "x" * 40)
    (home / "token").chmod(0o644)
    code, found = ask(capsys, "--home", home, "--port", port)
    assert code == 1
    assert found["state"][0]["advice"] == f"chmod 700 {home}"
    assert found["token"][0]["advice"] == f"chmod 600 {home / 'token'}"
    home.chmod(0o700)
    (home / "token").chmod(0o600)
    code, found = ask(capsys, "--home", home, "--port", port)
    assert (states(found)["state"], states(found)["token"]) == ("ok", "ok")
    (home / "token").write_text("")
    assert states(ask(capsys, "--home", home, "--port", port)[1])["token"] == "bad"


def hang_up(server: socket.socket) -> None:
    """Answers every connection with bytes that are not HTTP, until the socket is closed."""
    with suppress(OSError):
        while True:
            server.accept()[0].close()


@pytest.mark.parametrize(
    ("app_url", "count", "advice"),
    [
        ("", 1, "Open the page that offers s0"),
        ("", 9, "Open the page that offers s0 or s1 or s2 or s3 or s4 or s5 or another one"),
        ("http://127.0.0.1:4747", 9, "Open http://127.0.0.1:4747/"),
        ("http://127.0.0.1:4747", 0, "Open http://127.0.0.1:4747/"),
    ],
)
def test_the_page_to_open_is_named(app_url: str, count: int, advice: str) -> None:
    rows = [{"name": f"s{number}", "state": "offline", "tools": []} for number in range(count)]
    (found,) = readiness.findings([{"servers": rows, "asking": [], "app_url": app_url}], "tabrelay")
    assert (found.text, found.advice) == ("No page is connected.", advice)


def test_a_state_directory_that_is_a_file_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "home").write_text("")
    code, found = ask(capsys, "--home", tmp_path / "home", "--port", "9")
    assert code == 1 and states(found)["state"] == "bad" and states(found)["token"] == "note"
    assert found["state"][0]["text"].endswith("home is a file, not a directory.")


def test_a_port_that_another_program_has_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        taken.close()
        with socket.create_server(("127.0.0.1", number)) as server:
            hangs_up = Thread(target=hang_up, args=(server,))
            hangs_up.start()
            code, found = ask(capsys, "--home", tmp_path / "none", "--port", number)
            server.shutdown(socket.SHUT_RDWR)
            hangs_up.join()
    assert code == 1
    assert found["port"][0]["help"] == "TR306"
    assert found["port"][0]["advice"] == f"tabrelay serve --port {number + 1}"


async def test_a_relay_with_another_token_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    async with RunningRelay(tmp_path / "theirs") as relay:
        home = tmp_path / "ours"
        home.mkdir(mode=0o700)
        (home / "token").write_text("tr_" + "y" * 43)
        (home / "token").chmod(0o600)
        code, found = await asyncio.to_thread(ask, capsys, "--home", home, "--port", relay.port)
    assert code == 1
    assert found["token"][0]["state"] == "bad" and "--home" in found["token"][0]["advice"]


def test_clients_that_can_not_work_are_bad(
    tmp_path: Path, person: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (person / ".cursor").mkdir()
    entry = {"command": "/no/such/tabrelay", "args": ["stdio", "notes"]}
    (person / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry, "other": {"url": "x"}}}))
    (person / ".claude.json").write_text("{oops")
    code, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert code == 1
    by_client = {row["text"].partition(":")[0]: row for row in found["client"]}
    assert by_client["Cursor"]["advice"] == "tabrelay install cursor notes --force"
    assert "Line 1" in by_client["Claude Code"]["text"]
    assert len(found["client"]) == 2


def test_origins_and_assets_that_are_wrong_are_bad(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tabrelay.assets.files import Assets, AssetsMissing

    def missing(self: Assets) -> None:
        raise AssetsMissing("Pyodide is missing. make demo brings it.")

    monkeypatch.setattr(Assets, "check", missing)
    monkeypatch.setenv("TABRELAY_ALLOW_ORIGINS", "not an origin")
    code, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert code == 1
    assert states(found)["assets"] == states(found)["origins"] == "bad"


def test_without_a_screen_it_prints_the_next_step(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4")
    _, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert found["browser"][0]["state"] == "note" and "tabrelay pair" in found["browser"][0]["advice"]


def test_a_browser_without_a_display_is_not_reported_as_missing(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    _, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert found["browser"][0]["text"] == "No browser can be opened from here (no display)."
    assert found["browser"][0]["advice"].endswith(f"ssh -L {port}:127.0.0.1:{port}")


def test_a_check_that_raises_does_not_end_the_others(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def _failing_check(relay: doctor.DiagnosedRelay) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "LOCAL_CHECKS", (_failing_check, *doctor.LOCAL_CHECKS))
    code, found = ask(capsys, "--home", tmp_path / "none", "--port", port)
    assert code == 1 and "ZeroDivisionError" in found["failing_check"][0]["text"] and "program" in found


def test_the_output_for_users_is_a_list_with_advice(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--home", str(tmp_path / "none"), "--port", str(port)]) == 1
    text = capsys.readouterr().out
    assert "ok    program" in text and "→ tabrelay install CLIENT NAME" in text and "All is well" not in text
    missing = text.partition("Missing for a call, in this order:\n")[2].splitlines()[:-1]
    assert [line.split()[:4] for line in missing] == [["1.", "No", "relay", "runs."], ["2.", "No", "page", "is"]]
    assert "No relay runs. [TR302]\n" in text and text.endswith("Help: tabrelay help CODE, with a code in brackets\n")
