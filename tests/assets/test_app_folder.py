"""Files of a developer's app: which are found, which are never served, and which changes are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tabrelay.assets import app_folder
from tabrelay.assets.app_folder import MOST_WATCHED, RELOAD_SCRIPT, AppFile, AppFolder, Moved, server_names
from tabrelay.assets.stored_file import StoredFile


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "app"
    for name, text in {
        "index.html": "<!doctype html><head><title>App</title></HEAD><body>",
        "tools.py": "x = 1\n",
        "my file.css": "body {}\n",
        "sub/index.html": "<p>no head",
        "plain/a.wasm": "\0asm",
        "plain/<b>.txt": "b",
        ".env": "SECRET=1",
        ".git/config": "[core]",
        "sub/.hidden/file.js": "",
        "tabrelay.js": '// Loader\nexport const RELAY = "http://127.0.0.1:4747";\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "secret.txt").write_text("secret")
    return root


def body(found: object) -> bytes:
    assert isinstance(found, AppFile) and isinstance(found.body, bytes)
    return found.body


@pytest.mark.parametrize(
    ("path", "mime"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/tools.py", "text/x-python; charset=utf-8"),
        ("/my file.css", "text/css; charset=utf-8"),
        ("/plain/a.wasm", "application/wasm"),
        ("/tabrelay.js", "text/javascript; charset=utf-8"),
        ("/sub/", "text/html; charset=utf-8"),
    ],
)
def test_files_have_the_type_that_browsers_need(root: Path, path: str, mime: str) -> None:
    found = AppFolder(root).find(path)
    assert isinstance(found, AppFile) and found.mime == mime


@pytest.mark.parametrize(
    "path",
    [
        "/.env",
        "/.git/config",
        "/sub/.hidden/file.js",
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/sub/..",
        "//secret.txt",
        "/sub//index.html",
        "/..\\secret.txt",
        "/tools.py/",
        "/tools.py\0",
        "/C:/secret.txt",
        "tools.py",
        "/none.js",
        "/" + "a" * 2000,
    ],
)
def test_what_is_hidden_or_outside_is_not_there(root: Path, path: str) -> None:
    assert AppFolder(root).find(path) is None


def test_a_link_may_lead_to_files_inside_only(root: Path, tmp_path: Path) -> None:
    (root / "inside.css").symlink_to(root / "my file.css")
    (root / "outside.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "env.txt").symlink_to(root / ".env")
    folder = AppFolder(root)
    assert body(folder.find("/inside.css")) == b"body {}\n"
    assert [folder.find(path) for path in ("/outside.txt", "/out/secret.txt", "/out/", "/env.txt")] == [None] * 4


def test_a_page_gets_the_script_that_loads_it_again(root: Path) -> None:
    folder = AppFolder(root)
    assert body(folder.find("/")).startswith(b"<!doctype html><head><title>App</title>" + RELOAD_SCRIPT + b"</HEAD>")
    assert body(folder.find("/sub/")) == b"<p>no head" + RELOAD_SCRIPT
    assert body(folder.find("/tools.py")) == b"x = 1\n"


def test_the_loader_names_the_address_that_it_is_served_at(root: Path) -> None:
    assert body(AppFolder(root).find("/tabrelay.js")).endswith(
        b"export const RELAY = new URL(import.meta.url).origin;\n"
    )


def test_a_folder_without_an_index_page_lists_its_files(root: Path) -> None:
    folder = AppFolder(root)
    assert folder.find("/plain") == Moved("/plain/")
    listed = body(folder.find("/plain/")).decode()
    assert '<a href="a.wasm">a.wasm</a>' in listed and "<b>" not in listed and "&lt;b&gt;.txt" in listed
    assert folder.beside("/sub/nothing") == ["index.html"]


def test_changes_of_requested_files_are_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_folder, "_POLL_S", 0)
    folder = AppFolder(root)
    folder.find("/")
    folder.find("/late.js")
    (root / "my file.css").write_text("changed")
    assert folder.changes(0) == []
    os.utime(root / "index.html", ns=(1, 1))
    assert folder.changes(0) == ["/index.html"]
    version = folder.version
    assert folder.changes(version) == []
    (root / "late.js").write_text("")
    assert folder.changes(version) == ["/late.js"]
    (root / "index.html").unlink()
    assert folder.changes(folder.version) == ["/index.html"]


def test_the_number_of_watched_files_is_bounded(root: Path) -> None:
    folder = AppFolder(root)
    for number in range(MOST_WATCHED + 10):
        folder.find(f"/none{number}")
    assert len(folder._watched) == MOST_WATCHED


def test_a_large_file_is_not_kept_in_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_folder, "MAX_IN_MEMORY", 4)
    found = AppFolder(root).find("/tools.py")
    assert isinstance(found, AppFile) and isinstance(found.body, StoredFile)


def test_the_names_of_servers_are_read_from_the_page(root: Path) -> None:
    (root / "index.html").write_text("connect({ server: 'notes' }); <script data-server=\"shop\"> server: name")
    assert list(server_names(root)) == ["notes", "shop"]
    assert list(server_names(root / "plain")) == []
