"""`tabrelay service`: the file for systemd or launchd, and the commands that activate it."""

from __future__ import annotations

import configparser
import json
import os
import plistlib
import shlex
import sys
from pathlib import Path

import pytest

from tabrelay.cli import service
from tabrelay.cli.main import main
from tabrelay.cli.output import ExitWith


class System:
    """A systemctl that records its commands."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "commands"
        self.unit = folder / "config" / "systemd" / "user" / "tabrelay.service"
        (folder / "bin").mkdir()
        program = folder / "bin" / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {self._log}\n[ ! -e {folder}/broken ] || {{ echo no bus >&2; exit 1; }}\n'
        )
        program.chmod(0o755)

    @property
    def commands(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return System(tmp_path)


def command(unit: Path) -> list[str]:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(unit.read_text())
    return shlex.split(parsed["Service"]["ExecStart"])


@pytest.mark.starts_process
def test_a_service_is_installed_and_removed(system: System, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--port", "4750", "--allow-origin", "https://a.example", "--home", "my state", "--log-file", "none"]
    assert main(["service", "install", "notes", "demo", *flags]) == 0
    words = command(system.unit)
    assert Path(words[0]).is_absolute()
    home = str(tmp_path / "my state")
    assert words[words.index("serve") :] == [
        *("serve", "notes", "demo", "--port", "4750", "--allow-origin", "https://a.example"),
        *("--home", home, "--log-file", "none", "--no-open"),
    ]
    assert system.commands == [
        "--user daemon-reload",
        "--user enable tabrelay.service",
        "--user restart tabrelay.service",
    ]
    assert "StandardOutput=null" in system.unit.read_text(), "its first lines contain a pairing code"

    assert main(["service", "install", "notes", "demo", *flags]) == 0, "once more changes nothing"
    assert main(["service", "install", "other"]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["service", "install", "other", "--force"]) == 0
    assert "other" in command(system.unit)

    assert main(["service", "remove"]) == 0
    assert not system.unit.exists()
    assert system.commands[-2:] == ["--user disable --now tabrelay.service", "--user daemon-reload"]
    assert main(["service", "remove"]) == 1


def test_a_dry_run_does_nothing(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "install", "notes", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "ExecStart=" in shown and "systemctl --user daemon-reload" in shown
    assert not system.unit.exists() and system.commands == []


def test_a_dry_run_prints_json_for_programs(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "install", "notes", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["path"], found["done"]) == (str(system.unit), False)
    assert "ExecStart=" in found["text"] and found["commands"][0] == ["systemctl", "--user", "daemon-reload"]
    assert not system.unit.exists() and system.commands == []

    system.unit.parent.mkdir(parents=True)
    system.unit.write_text(found["text"])
    assert main(["service", "remove", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commands"] == [
        ["systemctl", "--user", "disable", "--now", "tabrelay.service"]
    ]
    assert system.unit.exists() and system.commands == []


def test_settings_with_which_a_relay_could_not_start_are_reported_at_installation(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "install", "--log-level", "loud"]) == 2
    assert main(["service", "install", "-c", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
    assert not system.unit.exists()


@pytest.mark.starts_process
def test_an_error_of_the_system_is_repeated(system: System, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken").touch()
    assert main(["service", "install", "notes"]) == 1
    assert "no bus" in capsys.readouterr().err


def test_a_service_of_another_program_stays(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    system.unit.parent.mkdir(parents=True)
    system.unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert main(["service", "remove"]) == 1
    assert "by hand" in capsys.readouterr().err
    assert system.unit.exists()


def test_words_are_written_as_systemd_reads_them() -> None:
    words = ["/a b/tabrelay", "50%", "$HOME", 'quo"te', "back\\slash", ""]
    line = next(line for line in service.describe(words, "linux").text.splitlines() if line.startswith("ExecStart="))
    assert line == 'ExecStart="/a b/tabrelay" 50%% $$HOME quo\\"te back\\\\slash ""'


def test_launchd_gets_a_list_of_properties(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = service.describe(["/a b/tabrelay", "serve", "<&>"], "darwin")
    assert made.path == tmp_path / "Library" / "LaunchAgents" / "dev.tabrelay.relay.plist"
    parsed = plistlib.loads(made.text.encode())
    assert parsed["ProgramArguments"] == ["/a b/tabrelay", "serve", "<&>"]
    assert (parsed["Label"], parsed["RunAtLoad"], parsed["KeepAlive"]) == (
        "dev.tabrelay.relay",
        True,
        {"SuccessfulExit": False},
    )
    assert made.start == (("launchctl", "bootstrap", f"gui/{os.getuid()}", str(made.path)),)
    with pytest.raises(ExitWith, match="Windows"):
        service.describe([], "win32")
