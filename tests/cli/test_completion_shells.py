"""Completion in bash, zsh and fish themselves: the scripts, with the program that they ask for names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tabrelay.cli.main import main
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore, StoredServer
from tests.support.shell_terminal import ShellTerminal

# What is typed, and the line that Tab makes of it.
LINES = {
    "sta": "status",
    "install cu": "install cursor",
    "install cursor no": "install cursor notes",
    "install cursor --dry": "install cursor --dry-run",
    "service rem": "service remove",
    "token new --ser": "token new --server",
    "call no": "call notes",
    "call notes pa": "call notes paint",
    "call notes paint col": "call notes paint colour=",
    "call notes paint colour=re": "call notes paint colour=red",
}


@pytest.fixture
def env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """A state directory with the tools of a server, the script of each shell, and the program on the PATH."""
    colours = {"enum": ["red", "green", "$(touch hacked)"]}
    tools = ({"name": "paint", "inputSchema": {"type": "object", "properties": {"colour": colours}}},)
    store = CatalogueStore(tmp_path / "servers.json")
    store.put("notes", StoredServer(Catalogue({"serverInfo": {"name": "notes", "version": "1"}}, tools)))
    store.flush()
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / f"script.{shell}").write_text(capsys.readouterr().out)
    program = tmp_path / "bin" / "tabrelay"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tabrelay "$@"\n')
    program.chmod(0o755)
    return {
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "TABRELAY_HOME": str(tmp_path),
        "TERM": "xterm",
        "PWD": str(tmp_path),
    }


def find(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell} here; `make test` installs it where there is apt-get")
    return found


@pytest.mark.parametrize(("shell", "flags"), [("bash", ["--norc", "--noprofile"]), ("zsh", ["-f"])])
def test_tab_completes_at_a_terminal(shell: str, flags: list[str], env: dict[str, str]) -> None:
    with ShellTerminal([find(shell), *flags, "-i"], env) as terminal:
        terminal.run(f"cd; source ./script.{shell}; echo LOAD''ED", "LOADED")
        for typed, completed in LINES.items():
            terminal.complete(f"tabrelay {typed}", f"tabrelay {completed}")
        # By its full path too, as where it is not on the PATH.
        terminal.complete(f"{env['HOME']}/bin/tabrelay call no", "/bin/tabrelay call notes")
    assert not (Path(env["HOME"]) / "hacked").exists()


def test_fish_completes(env: dict[str, str]) -> None:
    asked = "".join(f"complete -C 'tabrelay {typed}'; echo END;" for typed in LINES)
    command = f"cd; source script.fish; {asked} complete -C 'bin/tabrelay call no'"
    ended = subprocess.run(
        [find("fish"), "--no-config", "-c", command], env=env, capture_output=True, text=True, check=True
    )
    offered = [block.split("\n") for block in ended.stdout.split("END\n")]
    assert ended.stderr == ""
    for lines, completed in zip(offered, [*LINES.values(), "notes"], strict=True):
        assert completed.split()[-1] in [line.partition("\t")[0] for line in lines], (completed, lines)


def test_zsh_loads_its_own_completion_if_the_user_has_not(env: dict[str, str]) -> None:
    command = 'source ./script.zsh && print -r -- "$_comps[tabrelay]"'
    ended = subprocess.run(
        [find("zsh"), "-f", "-c", f"cd; {command}"], env=env, capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("_tabrelay\n", "")
