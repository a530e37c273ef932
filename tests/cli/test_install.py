"""`tabrelay install` and `uninstall`: the files of fifteen clients, with a copy, and never over another program's
entry."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tabrelay.cli.client_files.file import ConfigFile, FileError
from tabrelay.cli.client_files.known import BY_NAME, CLIENTS, Launch, UserFolders, starts_bridge
from tabrelay.cli.main import main

LAUNCHED = [str(Path(sys.executable).with_name("tabrelay")), "stdio", "notes"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*argv: str) -> int:
    try:
        return main(list(argv))
    except SystemExit as left:
        return int(left.code or 0)


def read(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


def servers(name: str, path: Path) -> Any:
    found = read(path)
    for part in BY_NAME[name].root:
        found = found[part]
    return found


def words(entry: dict[str, Any]) -> list[str]:
    command = entry["command"]
    return [*(command if isinstance(command, list) else [command]), *entry.get("args", [])]


def copies(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.bak"))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_server_gets_into_a_clients_file_and_out_again(name: str, home: Path) -> None:
    path = BY_NAME[name].path(UserFolders(home, "linux"))
    assert run("install", name, "notes") == 0
    entry = servers(name, path)["notes"]
    assert words(entry) == LAUNCHED
    assert starts_bridge(entry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("install", name, "notes") == 0, "once more changes nothing"
    assert copies(path.parent) == []
    assert run("uninstall", name, "notes") == 0
    assert servers(name, path) == {} if path.suffix == ".json" else "mcp_servers" not in read(path)
    assert len(copies(path.parent)) == 1


def test_every_client_has_its_own_form() -> None:
    launch = Launch("/bin/tabrelay", ("stdio", "notes"))
    plain = {"command": "/bin/tabrelay", "args": ["stdio", "notes"]}
    entries = {client.name: client.entry(launch) for client in CLIENTS}
    assert entries.pop("opencode") == {"type": "local", "command": ["/bin/tabrelay", "stdio", "notes"], "enabled": True}
    assert entries.pop("claude-code") == entries.pop("vscode") == {"type": "stdio", **plain}
    assert entries.pop("copilot-cli") == {"type": "local", **plain, "tools": ["*"]}
    assert all(entry == plain for entry in entries.values())


@pytest.mark.parametrize(
    ("platform", "name", "path"),
    [
        ("linux", "claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "Roaming/Claude/claude_desktop_config.json"),
        ("linux", "vscode", ".config/Code/User/mcp.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("win32", "vscode", "Roaming/Code/User/mcp.json"),
        ("linux", "zed", ".config/zed/settings.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("win32", "zed", "Roaming/Zed/settings.json"),
        ("linux", "windsurf", ".codeium/windsurf/mcp_config.json"),
        ("linux", "codex", ".codex/config.toml"),
        ("linux", "cursor", ".cursor/mcp.json"),
        ("linux", "claude-code", ".claude.json"),
        ("linux", "cline-cli", ".cline/data/settings/cline_mcp_settings.json"),
        ("darwin", "copilot-cli", ".copilot/mcp-config.json"),
        ("linux", "qwen-code", ".qwen/settings.json"),
    ],
)
def test_files_are_where_each_system_has_them(platform: str, name: str, path: str, home: Path) -> None:
    assert BY_NAME[name].path(UserFolders(home, platform, home / "Roaming")) == home / path


def test_other_entries_of_the_file_stay_and_a_copy_is_kept(home: Path) -> None:
    path = home / ".config" / "zed" / "settings.json"
    path.parent.mkdir(parents=True)
    before = '// mine\n{\n\t"theme": "One", // nice\n\t"context_servers": {\n\t\t"a": {"command": "x"},\n\t},\n}\n'
    path.write_text(before)
    path.chmod(0o640)
    assert run("install", "zed", "notes") == 0
    after = path.read_text()
    assert all(line in after for line in before.splitlines())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    [copy] = copies(path.parent)
    assert copy.read_text() == before and stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert run("uninstall", "zed", "notes") == 0
    assert path.read_text() == before


def test_a_dry_run_shows_what_would_change_and_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".cursor" / "mcp.json"
    assert run("install", "cursor", "--dry-run", "notes") == 0
    assert not path.parent.exists()
    shown = capsys.readouterr().out
    assert f"+++ {path}" in shown and '+    "notes": {' in shown
    run("install", "cursor", "notes")
    before = path.read_bytes()
    capsys.readouterr()
    assert run("uninstall", "cursor", "notes", "--dry-run") == 0
    assert '-    "notes": {' in capsys.readouterr().out
    assert path.read_bytes() == before and copies(path.parent) == []


def test_another_entry_of_that_name_is_not_replaced_without_force(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"notes": {"url": "https://x"}}}')
    before = path.read_bytes()
    assert run("install", "cursor", "notes") == 1
    assert "--force" in capsys.readouterr().err
    assert run("uninstall", "cursor", "notes") == 1
    assert "not written by tabrelay" in capsys.readouterr().err
    assert path.read_bytes() == before and copies(path.parent) == []
    assert run("install", "cursor", "notes", "--as", "mine") == 0
    assert servers("cursor", path).keys() == {"notes", "mine"}
    assert run("install", "cursor", "notes", "--force") == 0
    assert words(servers("cursor", path)["notes"]) == LAUNCHED
    assert run("uninstall", "cursor", "mine") == 0
    assert run("uninstall", "cursor", "mine") == 1


def test_without_a_name_all_of_ours_go(home: Path) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('[mcp_servers.theirs]\ncommand = "x"\n')
    assert run("install", "codex", "notes", "demo", "https://mcp.example.com/mcp") == 0
    assert servers("codex", path).keys() == {"theirs", "notes", "demo", "mcp.example.com"}
    assert run("uninstall", "codex") == 0
    assert path.read_text() == '[mcp_servers.theirs]\ncommand = "x"\n'


def test_a_file_that_can_not_be_changed_safely_is_not_touched(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    text = 'mcp_servers.notes.command = "x"\nmcp_servers.b.command = "z"\n'
    path.write_text(text)
    assert run("install", "codex", "notes", "--force") == 1
    assert "by hand" in capsys.readouterr().err
    assert path.read_text() == text and copies(path.parent) == []


@pytest.mark.parametrize("name", [client.name for client in CLIENTS if client.project])
def test_a_project_has_a_file_of_its_own(name: str, home: Path) -> None:
    assert run("install", name, "notes", "--project") == 0
    assert "notes" in servers(name, home / str(BY_NAME[name].project))


def test_a_link_to_the_file_stays_a_link(home: Path) -> None:
    real = home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").symlink_to(real)
    assert run("install", "cursor", "notes") == 0
    assert (home / ".cursor" / "mcp.json").is_symlink()
    assert "notes" in servers("cursor", real)


@pytest.mark.parametrize("text", ["{oops", '{"mcpServers": []}', "[]", "\x00\xff"])
def test_a_file_that_can_not_be_understood_is_not_touched(
    text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    assert run("install", "cursor", "notes", "--force") == 1
    assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == text.encode("latin-1") and copies(path.parent) == []


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["install", "emacs", "notes"], "claude-desktop"),
        (["install", "cusor", "notes"], "Did you mean cursor?"),
        (["install", "windsurf", "notes", "--project"], "no file inside projects"),
        (["install", "cursor", "no name"], "not allowed"),
        (["install", "cursor", "ftp://x"], "https://"),
        (["install", "cursor", "a", "b", "--as", "c"], "one server"),
        (["uninstall"], "CLIENT"),
        (["install", "cursor", "--port", "9"], "Which server?"),
    ],
)
def test_typing_errors_are_reported(argv: Sequence[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*argv) == 2
    assert hint in capsys.readouterr().err


def test_without_a_client_it_shows_which_are_here(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("install", "cursor", "notes")
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text("{")
    capsys.readouterr()
    assert run("install") == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "notes" in lines["cursor"] and "no file yet" in lines["zed"] and "can't be read" in lines["gemini"]
    assert lines.keys() >= set(BY_NAME)


def test_a_relay_with_another_state_directory_is_found_by_the_entry(home: Path) -> None:
    assert run("install", "cursor", "notes", "--home", "state") == 0
    assert words(servers("cursor", home / ".cursor" / "mcp.json")["notes"])[-2:] == ["--home", str(home / "state")]


def test_a_folder_that_can_not_be_written_is_reported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".cursor").write_text("in the way")
    assert run("install", "cursor", "notes") == 1
    assert ".cursor" in capsys.readouterr().err
    assert os.listdir(home) == [".cursor"]


@pytest.mark.parametrize("name", ["cursor", "codex"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_another_program_changes_meanwhile_is_left_as_it_is(name: str, is_there: bool, home: Path) -> None:
    """Clients write their files at any time too."""
    client = BY_NAME[name]
    path = client.path(UserFolders(home, "linux"))
    path.parent.mkdir(parents=True)
    if is_there:
        path.write_text("")
    change = ConfigFile(client, path).put({"notes": {"command": "x"}})
    path.write_text("# theirs\n" if client.format == "toml" else '{"theirs": 1}')
    before = path.read_text()
    with pytest.raises(FileError, match="changed by another program"):
        change.apply()
    assert path.read_text() == before and copies(path.parent) == []
    ConfigFile(client, path).put({"notes": {"command": "x"}}).apply()
    assert "theirs" in path.read_text() and "notes" in path.read_text()


def test_a_client_that_names_another_file_by_its_environment_gets_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_HOME", str(home / "other"))
    monkeypatch.setenv("CLINE_MCP_SETTINGS_PATH", str(home / "cline.json"))
    assert run("install", "copilot-cli", "notes") == run("install", "cline-cli", "notes") == 0
    assert "notes" in servers("copilot-cli", home / "other" / "mcp-config.json")
    assert "notes" in servers("cline-cli", home / "cline.json")
