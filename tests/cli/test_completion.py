"""Shell completion: the candidates after typed words. Shells at a terminal are in `test_completion_shells`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tabrelay.cli import completion_words
from tabrelay.cli.completion import walk
from tabrelay.cli.main import _parser, main
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore, StoredServer


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


ASK = """
COMP_WORDS=(tabrelay "$@"); COMP_CWORD=$#; COMPREPLY=(); _tabrelay; echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["sta"], "status"),
        (["un"], "uninstall"),
        (["install", "cu"], "cursor"),
        (["install", "cursor", "--dry"], "--dry-run"),
        (["install", "cursor", "no"], "notes"),
        (["service", ""], "install remove"),
        (["service", "remove", "--d"], "--dry-run"),
        (["stdio", "--check", "de"], "demo"),
        (["call", "notes", "--arg"], "--args"),
        (["completion", "z"], "zsh"),
        (["call", "notes", "add", "a", "="], "notes demo"),
        (["pairs", "app"], "approve"),
        (["--ver"], "--version"),
    ],
)
def test_bash_offers_what_can_follow(
    typed: list[str], offered: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Names come from the program itself; here from one that has two.
    fake = tmp_path / "tabrelay"
    fake.write_text("#!/bin/sh\necho notes\necho demo\n")
    fake.chmod(0o755)
    (tmp_path / "script").write_text(script("bash", capsys) + ASK)
    bash = shutil.which("bash")
    assert bash is not None
    ended = subprocess.run(
        [bash, "--norc", str(tmp_path / "script"), *typed],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        check=True,
    )
    assert (ended.stdout.strip(), ended.stderr) == (offered, "")


# -- words that come from files ----------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What a relay leaves that had a server with a tool, with a value that a shell would run."""
    colours = {"enum": ["red", "green", "$(touch hacked)", "two words"]}
    schema = {"type": "object", "properties": {"colour": colours, "is_thick": {"type": "boolean"}}}
    tools = ({"name": "paint", "inputSchema": schema}, {"name": "a`id`", "inputSchema": {"type": "object"}})
    store = CatalogueStore(tmp_path / "servers.json")
    store.put("notes", StoredServer(Catalogue({"serverInfo": {"name": "notes", "version": "1"}}, tools)))
    store.put("idle", StoredServer())
    store.flush()
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["call", ""], ["idle", "notes"]),
        (["call", "notes", ""], ["paint"]),
        (["call", "-f", "json", "notes", ""], ["paint"]),
        (["tools", "notes", "--tool", ""], ["paint"]),
        (["call", "notes", "paint", "col"], ["colour=", "is_thick="]),
        (["call", "notes", "paint", "colour=re"], ["colour=red", "colour=green"]),
        (["call", "notes", "paint", "colour", "=", "re"], ["red", "green"]),
        (["call", "notes", "paint", "colour", "="], ["red", "green"]),
        (["call", "notes", "paint", "colour=red", "is_thick="], ["is_thick=true", "is_thick=false"]),
        (["call", "unknown", ""], []),
        (["forget", ""], ["idle", "notes"]),
        (["cal"], []),
    ],
)
def test_servers_tools_and_arguments_come_from_the_last_lists(
    home: Path, typed: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABRELAY_HOME", str(home))
    assert completion_words.reply(typed) == offered


def test_every_verb_and_flag_is_in_every_shell(capsys: pytest.CaptureFixture[str]) -> None:
    words = list(walk(_parser()))
    bash, zsh, fish = (script(shell, capsys) for shell in ("bash", "zsh", "fish"))
    for word in words:
        assert f'"{" ".join(word.path)}")' in bash and f'"{" ".join(word.path)}")' in zsh
        for flag, _ in word.flags:
            assert f" {flag}" in bash or f'"{flag}' in bash
            assert f"'{flag}:" in zsh
            assert f" {'-l' if flag.startswith('--') else '-s'} {flag.lstrip('-')} " in fish
    assert fish.count("\n") > 100 and "__fish_seen_subcommand_from service" in fish
