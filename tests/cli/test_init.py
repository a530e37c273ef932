"""`tabrelay init`: the files that it writes, and those that it never changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tabrelay.cli.main import main

FILES = ["index.html", "tabrelay.js", "tools.py"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_empty_folder_gets_a_page_tools_and_the_loader(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "My Notes"]) == 0
    assert names(folder / "My Notes") == FILES
    page = (folder / "My Notes" / "index.html").read_text()
    assert 'connect({ server: "my-notes", worker: "tabrelay.js", modules: ["tools.py"] })' in page
    assert "SERVER" not in page
    printed = capsys.readouterr().out
    assert printed.count("wrote") == 3 and re.search(r"^Next: .*tabrelay.* dev 'My Notes'$", printed, re.MULTILINE)


def test_the_current_folder_is_the_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--server", "shop"]) == 0
    assert names(folder) == FILES and 'server: "shop"' in (folder / "index.html").read_text()
    assert capsys.readouterr().out.endswith(" dev\n")


def test_what_exists_is_left_as_it_is_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "index.html").write_text("mine")
    assert main(["init"]) == 0
    assert (folder / "index.html").read_text() == "mine" and names(folder) == FILES
    printed = capsys.readouterr().out
    assert "exists     index.html, left as it is" in printed and "--force" in printed
    assert 'import { load } from "./tabrelay.js";' in printed
    assert main(["init", "--force"]) == 0
    assert "<!doctype html>" in (folder / "index.html").read_text()
    printed = capsys.readouterr().out
    assert "replaced   index.html" in printed.replace("     ", "   ") and printed.count("unchanged") == 2


def test_a_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "new", "--dry-run"]) == 0
    assert names(folder) == []
    assert capsys.readouterr().out.count("would write") == 3


def test_nothing_is_written_through_a_link(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("other") / "target"
    target.write_text("theirs")
    (folder / "tools.py").symlink_to(target)
    (folder / "index.html").symlink_to(folder / "nowhere")
    assert main(["init", "--force"]) == 0
    assert target.read_text() == "theirs" and not (folder / "nowhere").exists()


def test_a_bad_name_or_a_file_in_the_place_of_the_folder_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("")
    assert main(["init", "file"]) == 2
    assert main(["init", "--server=a b"]) == 2
    assert main(["init", "file/inside"]) == 1
    assert "wrote" not in capsys.readouterr().out
    assert main(["init", "file"]) == 2
    assert main(["init", "--server=a b"]) == 2
    assert "is not a folder" in (said := capsys.readouterr().err) and "not allowed" in said
    assert names(folder) == ["file"]


def test_a_server_has_the_name_of_its_folder_in_ascii(folder: Path) -> None:
    for name, server in (("Müller & Söhne", "muller-sohne"), ("日記", "app")):
        assert main(["init", name]) == 0
        assert f'server: "{server}"' in (folder / name / "index.html").read_text()


def test_the_next_command_can_be_pasted_whatever_the_folder_is_called(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, shown in (("my app", "'my app'"), ("-x", "./-x")):
        assert main(["init", "--", name]) == 0
        assert capsys.readouterr().out.endswith(f" dev {shown}\n")


def test_dev_without_a_folder_prints_how_to_make_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "missing"]) == 2
    assert re.search(r"missing is not a folder. To make one: .*tabrelay.* init missing", capsys.readouterr().err)
    (folder / "page.html").write_text("")
    assert main(["dev", "page.html"]) == 2
    assert re.search(r"page.html is a file. Name its folder: .*tabrelay.* dev \.\n", capsys.readouterr().err)
    assert main(["dev", "--host", "0.0.0.0"]) == 2
    assert "only on a loopback address" in capsys.readouterr().err
