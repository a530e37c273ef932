"""Assets for browsers: groups, hashes, paths that can't leave their folder, and the archive of the imported package."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

import tabrelay
import tabserver
from tabrelay.assets.files import MAX_IN_MEMORY, Assets, AssetsMissing, read_all

WORKER = "import './shim.js';\n" * 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "tabserver/__init__.py": "X = 1\n",
        "tabserver/wire/__init__.py": "",
        "tabserver/__pycache__/a.cpython-311.pyc": "compiled",
        "tabserver/micropython/tabserver.py": "small = True\n",
        "tabserver/js/worker.js": WORKER,
        "tabserver/js/ports.d.ts": "export {};\n",
        "tabserver/js/client.d.ts": "export {};\n",
        "tabserver/js/status.d.ts": "export {};\n",
        "tabserver/js/status.js": 'import { Status } from "./client/status_element.js";\n',
        "tabserver/js/client/status_element.js": 'import "../build.js";\n',
        "tabserver/js/client.js": 'export { connect } from "./client/connection.js";\n',
        "tabserver/js/client/connection.js": 'import {\n  pair,\n} from "./redeem_code.js";\n',
        "tabserver/js/client/redeem_code.js": 'import "../build.js";\n',
        "tabserver/js/build.js": 'export const BUILD = "";\n',
        "tabserver/js/app_view.js": "export {};\n",
        "page/index.html": "<!doctype html><title>relay</title>\n" * 10,
        "page/page.js": "export {};\n",
        "demo/index.html": "<!doctype html><title>demo</title>\n" * 10,
        "demo/tools.py": "from tabserver import tool\n",
        "pyodide/pyodide.mjs": "export const loadPyodide = 1;\n",
        "pyodide/pyodide.asm.wasm": "\0asm" * 100,
        "pyscript/core.js": "export const hooks = 1;\n",
        "pyscript/licenses/a.txt": "MIT\n",
        "micropython/micropython.mjs": "export const loadMicroPython = 1;\n",
        "micropython/micropython.wasm": "\0asm" * 100,
        "secret.txt": "not yours\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "pyodide/pyodide.asm.wasm.zst").write_bytes(b"\0asm, compressed")
    return tmp_path


FOLDERS = ("tabserver", "page", "demo", "pyodide", "pyscript", "micropython", "snapshot", "editor", "docs")


def assets(root: Path) -> Assets:
    return Assets(
        **{name: root / name for name in FOLDERS},
        fix="Do this.",
    )


def test_the_manifest_names_every_group_by_its_content(root: Path) -> None:
    made = assets(root)
    manifest = made.manifest()
    assert re.fullmatch(r"[0-9a-f]{16}", made.build)
    assert manifest["build"] == made.build
    assert re.fullmatch(r"/-/assets/tabserver-[0-9a-f]{16}/tabserver\.zip", manifest["tabserver"])
    for group in ("pyodide", "pyscript", "micropython", "js"):
        assert re.fullmatch(rf"/-/assets/{group}-[0-9a-f]{{16}}/", manifest[group])


@pytest.mark.parametrize(
    ("group", "file", "mime"),
    [
        ("js", "worker.js", "text/javascript; charset=utf-8"),
        ("pyodide", "pyodide.mjs", "text/javascript; charset=utf-8"),
        ("pyodide", "pyodide.asm.wasm", "application/wasm"),
        ("pyscript", "core.js", "text/javascript; charset=utf-8"),
        ("pyscript", "licenses/a.txt", "text/plain; charset=utf-8"),
        ("micropython", "micropython.wasm", "application/wasm"),
        ("tabserver", "", "application/zip"),
    ],
)
def test_a_hashed_address_leads_to_its_file_permanently(root: Path, group: str, file: str, mime: str) -> None:
    made = assets(root)
    asset = made.lookup(made.manifest()[group].removeprefix("/-/") + file)
    assert asset is not None
    assert asset.mime == mime
    assert asset.immutable


def test_the_same_files_give_the_same_build_and_another_file_another(root: Path) -> None:
    first = assets(root).manifest()
    os.utime(root / "tabserver/js/worker.js", (1, 1))
    assert assets(root).manifest() == first
    (root / "tabserver/js/worker.js").write_text("changed")
    second = assets(root).manifest()
    assert second["build"] != first["build"]
    assert second["js"] != first["js"]
    assert second["tabserver"] == first["tabserver"]
    (root / "tabserver/__init__.py").write_text("X = 2\n")
    third = assets(root).manifest()
    assert third["build"] != second["build"]
    assert third["tabserver"] != second["tabserver"]


def test_an_address_with_another_hash_is_not_answered_with_other_content(root: Path) -> None:
    made = assets(root)
    assert made.lookup("assets/js-0123456789abcdef/worker.js") is None
    assert made.lookup("assets/tabserver-0123456789abcdef/tabserver.zip") is None
    assert made.lookup("assets/other-0123456789abcdef/worker.js") is None


def test_what_was_hashed_is_what_is_served_even_if_the_disk_changes(root: Path) -> None:
    made = assets(root)
    address = made.manifest()["js"].removeprefix("/-/") + "worker.js"
    (root / "tabserver/js/worker.js").write_text("changed")
    frozen, live = made.lookup(address), made.lookup("worker.js")
    assert frozen is not None and frozen.body == WORKER.encode()
    assert live is not None and live.body == b"changed"


def test_an_edited_page_is_read_again(root: Path) -> None:
    made = assets(root)
    before = made.lookup("demo/tools.py")
    (root / "demo/tools.py").write_text("edited = True\n")
    after = made.lookup("demo/tools.py")
    assert before is not None and after is not None
    assert after.body == b"edited = True\n"
    assert after.etag != before.etag


def test_a_folder_of_the_demo_is_its_index(root: Path) -> None:
    (root / "demo/examples/todo").mkdir(parents=True)
    (root / "demo/examples/todo/index.html").write_text("<!doctype html>")
    made = assets(root)
    for path in ("demo/", "demo/examples/todo/"):
        found = made.lookup(path)
        assert found is not None and found.mime.startswith("text/html"), path
    for path in ("demo/examples/todo", "demo/examples/", "demo//", "demo/../page/"):
        assert made.lookup(path) is None, path


def test_stable_names_are_not_cached_permanently(root: Path) -> None:
    made = assets(root)
    made.lookup(made.manifest()["pyodide"].removeprefix("/-/") + "pyodide.mjs")
    paths = ["worker.js", "ports.d.ts", "demo/", "demo/tools.py", "page/page.js"]
    paths += ["tabserver.zip", "tabrelay.tgz", "pyodide/pyodide.mjs", "pyscript/licenses/a.txt"]
    paths += ["micropython/micropython.mjs", "micropython/tabserver.py"]
    for path in paths:
        asset = made.lookup(path)
        assert asset is not None, path
        assert not asset.immutable


@pytest.mark.parametrize("path", ["worker.js", "pyscript/core.js", "micropython/tabserver.py", "tabserver.zip"])
def test_each_attempt_to_load_a_module_again_has_a_path_of_its_own(root: Path, path: str) -> None:
    made = assets(root)
    first, second = made.lookup(f"retry/1/{path}"), made.lookup(f"retry/23/{path}")
    assert first is not None and first == second == made.lookup(path)


def test_the_loader_that_an_app_hosts_names_the_relay_that_it_came_from(root: Path) -> None:
    (root / "tabserver/js/tabrelay.js").write_text('const RELAY = "http://127.0.0.1:4747";\n')
    made = assets(root).loader("https://relay.example")
    assert made is not None and made.body == b'const RELAY = "https://relay.example";\n' and not made.immutable


@pytest.mark.parametrize(
    "path",
    [
        "",
        "retry/1/demo/tools.py",
        "retry/1/page/page.js",
        "retry/1/retry/1/worker.js",
        "retry/1/../worker.js",
        "retry/x/worker.js",
        "retry//worker.js",
        "demo/../secret.txt",
        "demo/..",
        "demo//tools.py",
        "demo/./tools.py",
        "demo/..\\secret.txt",
        "demo/tools.py/",
        "demo/tools.py\0",
        "demo/tools.py\n",
        "page/../page/page.js",
        "page",
        "page/",
        "../secret.txt",
        "/etc/passwd",
        "demo//etc/passwd",
        "licenses/a.txt",
        "tabserver/__init__.py",
        "__init__.py",
        "worker.js.gz",
        "pyodide/pyodide.asm.wasm.zst",
        "demo/link.txt",
        "demo/.hidden",
    ],
)
def test_nothing_outside_the_groups_can_be_named(root: Path, path: str) -> None:
    (root / "demo/link.txt").symlink_to(root / "secret.txt")
    (root / "demo/.hidden").write_text("no")
    (root / "tabserver/js/worker.js.gz").write_bytes(b"no")
    assert assets(root).lookup(path) is None


def test_a_compressed_sibling_is_used_and_text_is_compressed_here(root: Path) -> None:
    made = assets(root)
    wasm = made.lookup(made.manifest()["pyodide"].removeprefix("/-/") + "pyodide.asm.wasm")
    script = made.lookup("worker.js")
    assert wasm is not None and wasm.encoded == {"zstd": b"\0asm, compressed"}
    assert script is not None and list(script.encoded) == ["gzip"]
    assert gzip.decompress(read_all(script.encoded["gzip"])) == script.body


def test_the_npm_package_holds_the_client_and_what_it_imports_and_is_the_same_every_time(root: Path) -> None:
    package, again = assets(root).lookup("tabrelay.tgz"), assets(root).lookup("tabrelay.tgz")
    assert package is not None and again is not None and package.body == again.body
    assert package.mime == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(read_all(package.body))) as archive:
        names = archive.getnames()
        about = archive.extractfile("package/package.json")
        build = archive.extractfile("package/build.js")
        assert about is not None and build is not None
        described = json.loads(about.read())
        # An outdated copy in an app's bundle must contain the build of its relay.
        assert build.read().decode() == f'export const BUILD = "{assets(root).build}";\n'
    files = ["package.json", "client.d.ts", "status.d.ts", "build.js", "client.js", "client/connection.js"]
    files += ["client/redeem_code.js", "client/status_element.js", "status.js"]
    assert names == [f"package/{name}" for name in files]
    assert described["version"] == tabrelay.__version__
    assert described["exports"]["."] == {"types": "./client.d.ts", "default": "./client.js"}
    assert described["exports"]["./status"] == {"types": "./status.d.ts", "default": "./status.js"}
    # A bundler must keep the import that defines the element.
    assert described["sideEffects"] == ["./status.js"]


def test_compression_that_makes_a_file_larger_is_left_out(root: Path) -> None:
    asset = assets(root).lookup("ports.d.ts")
    assert asset is not None
    assert asset.encoded == {}


def test_the_zip_holds_the_python_and_the_script_of_apps_and_is_the_same_every_time(root: Path) -> None:
    bodies = []
    for _ in range(2):
        made = assets(root)
        asset = made.lookup(made.manifest()["tabserver"].removeprefix("/-/"))
        assert asset is not None
        bodies.append(read_all(asset.body))
        os.utime(root / "tabserver/__init__.py", (1, 1))
    assert bodies[0] == bodies[1]
    with zipfile.ZipFile(io.BytesIO(bodies[0])) as archive:
        python = ["tabserver/__init__.py", "tabserver/wire/__init__.py"]
        assert archive.namelist() == [*python, "tabserver/js/app_view.js"]
        assert archive.read("tabserver/__init__.py") == b"X = 1\n"


def give_snapshot(root: Path, fits: str | None = None) -> None:
    folder = root / "snapshot"
    folder.mkdir(exist_ok=True)
    (folder / "snapshot.bin").write_bytes(b"memory")
    fits = assets(root).snapshot_fingerprint if fits is None else fits
    about = {"fits": fits, "integrity": "sha256-x", "library_bytes": 7}
    (folder / "snapshot.json").write_text(json.dumps(about))


def test_a_snapshot_made_of_these_files_is_offered_with_its_hash(root: Path) -> None:
    assert "snapshot" not in assets(root).manifest()
    give_snapshot(root)
    made = assets(root)
    offered = made.manifest()["snapshot"]
    assert offered["integrity"] == "sha256-x" and offered["library_bytes"] == 7
    asset = made.lookup(offered["url"].removeprefix("/-/"))
    assert asset is not None and asset.body == b"memory" and asset.immutable


@pytest.mark.parametrize("changed", ["tabserver/wire/__init__.py", "pyodide/pyodide.mjs"])
def test_a_snapshot_made_of_other_files_is_not_offered(root: Path, changed: str) -> None:
    give_snapshot(root)
    (root / changed).write_text("CHANGED = 1\n")
    assert "snapshot" not in assets(root).manifest()


@pytest.mark.parametrize("about", ["", "[]", "{", '{"fits": null}'])
def test_a_snapshot_of_which_nothing_sound_is_known_is_not_offered(root: Path, about: str) -> None:
    give_snapshot(root)
    (root / "snapshot/snapshot.json").write_text(about)
    assert "snapshot" not in assets(root).manifest()


@pytest.mark.parametrize(
    "missing", ["pyodide/pyodide.mjs", "pyscript/core.js", "micropython/micropython.mjs", "tabserver/js/worker.js"]
)
def test_a_missing_file_is_reported_with_the_fix(root: Path, missing: str) -> None:
    (root / missing).unlink()
    with pytest.raises(AssetsMissing, match=r"Do this\."):
        assets(root).check()


def test_the_found_package_is_the_imported_one() -> None:
    found = Assets.find()
    assert found.build == Assets.find().build
    zipped = found.lookup(found.manifest()["tabserver"].removeprefix("/-/"))
    assert zipped is not None
    assert tabserver.__file__ is not None
    with zipfile.ZipFile(io.BytesIO(read_all(zipped.body))) as archive:
        assert archive.read("tabserver/__init__.py") == Path(tabserver.__file__).read_bytes()
        assert "tabserver/wire/link.py" in archive.namelist()


def test_a_large_file_of_a_runtime_stays_on_disk_and_what_was_hashed_is_what_is_read(root: Path) -> None:
    first, second = os.urandom(MAX_IN_MEMORY + 1), os.urandom(MAX_IN_MEMORY + 1)
    file = root / "pyodide/large.bin"
    file.write_bytes(first)
    made = assets(root)
    address = made.manifest()["pyodide"].removeprefix("/-/") + "large.bin"
    # As an upgrade does: another file replaces the old one under its name.
    file.unlink()
    file.write_bytes(second)
    asset = made.lookup(address)
    assert asset is not None and not isinstance(asset.body, bytes)
    assert len(asset.body) == len(first) and read_all(asset.body) == first
    assert asset.etag == hashlib.sha256(first).hexdigest()[:32]
    assert assets(root).manifest()["pyodide"] != made.manifest()["pyodide"]
