"""`tabrelay packages`: which packages are downloaded, checked and kept, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tabrelay.assets.package_index import MOST_PACKAGES, Package, PackageError, PackageIndex, check_file_name
from tabrelay.cli.main import main
from tabrelay.cli.package_sources import PythonTarget, describe_pure, needed
from tests.support.other_origin import Site
from tests.support.wheels import TAG, make_distribution, make_wheel

pytestmark = pytest.mark.starts_process
TARGET = PythonTarget("3.14.2", "2026_0")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory; pip finds the wheels of one folder only."""
    wheels = tmp_path / "wheels"
    make_wheel(wheels, "outer", needs=["inner>=1", "foreign; sys_platform == 'linux'", "old; python_version < '3.14'"])
    make_wheel(wheels, "inner")
    make_wheel(wheels, "built", tag="cp314-cp314-manylinux2014_x86_64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    return tmp_path / "home"


def run(home: Path, *words: str) -> int:
    return main(["packages", "--home", str(home), *words])


def test_pure_packages_come_with_what_they_need_in_pyodides_python(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "add", "outer") == 0
    said = capsys.readouterr()
    assert "added  inner 1.0" in said.out and "added  outer 1.0" in said.out and "pip download outer" in said.err
    packages = PackageIndex(home).read()
    assert sorted(packages) == ["inner", "outer"] and packages["outer"].depends == ("inner",)
    assert run(home, "list", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["inner", "outer"]
    assert run(home, "remove", "inner") == 0
    assert "Still needed by: outer" in capsys.readouterr().out
    assert [path.name for path in (home / "packages").glob("*.whl")] == ["outer-1.0-py3-none-any.whl"]
    assert run(home, "remove", "inner") == 1


@pytest.mark.parametrize("name", ["built", "missing", "numpy"])
def test_what_has_no_pure_wheel_is_refused_with_the_way_to_get_it(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "add", name) == 1
    assert f"packages add {name} --pyodide FOLDER_OR_URL" in capsys.readouterr().err
    assert PackageIndex(home).read() == {}


def test_compiled_packages_come_from_a_distribution_with_their_dependencies(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pyodide"
    fast, base = make_wheel(folder, "fast", tag=TAG), make_wheel(folder, "base", tag=TAG)
    make_distribution(folder, {"fast": (fast, ["base"]), "base": (base, [])})
    assert run(home, "add", "fast", "outer", "--pyodide", str(folder)) == 0
    assert sorted(PackageIndex(home).read()) == ["base", "fast", "inner", "outer"]
    assert run(home, "list") == 0
    assert capsys.readouterr().out.count("compiled") == 2
    # A wheel that differs from the lock file, and a name with a path.
    make_wheel(folder, "base", tag=TAG, text="evil = True\n")
    assert run(home, "add", "fast", "--pyodide", str(folder)) == 1
    assert "its hash differs" in capsys.readouterr().err
    lock = json.loads((folder / "pyodide-lock.json").read_text())
    lock["packages"]["base"]["file_name"] = "../base-1.0-py3-none-any.whl"
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    assert run(home, "add", "fast", "--pyodide", str(folder)) == 1
    assert "is not the name of a wheel" in capsys.readouterr().err
    lock["info"]["abi_version"] = "2025_0"
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    assert run(home, "add", "fast", "--pyodide", str(folder)) == 1
    assert "this relay has Python 3.14 and ABI 2026_0" in capsys.readouterr().err
    for place in ("http://far.example/pyodide/", str(tmp_path / "nothing")):
        assert run(home, "add", "fast", "--pyodide", place) == 1


def test_a_distribution_of_an_address_is_downloaded(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pyodide"
    fast, base = make_wheel(folder, "fast", tag=TAG), make_wheel(folder, "base", tag=TAG)
    make_distribution(folder, {"fast": (fast, ["base"]), "base": (base, [])})
    with Site(folder) as site:
        assert run(home, "add", "fast", "--pyodide", site.origin) == 0
        assert f"base from {site.origin}" in capsys.readouterr().err
        assert sorted(PackageIndex(home).read()) == ["base", "fast"]
        kept = home / "packages"
        assert {path.read_bytes() for path in kept.glob("*.whl")} == {fast.read_bytes(), base.read_bytes()}
        make_wheel(folder, "base", tag=TAG, text="evil = True\n")
        assert run(home, "add", "fast", "--pyodide", site.origin) == 1
        assert "its hash differs" in capsys.readouterr().err
        base.unlink()
        assert run(home, "add", "fast", "--pyodide", f"{site.origin}/") == 1
        assert f"{base.name} can't be read from {site.origin}/ (HTTP Error 404" in capsys.readouterr().err
        site.redirects["/pyodide-lock.json"] = "http://far.example/pyodide-lock.json"
        assert run(home, "add", "fast", "--pyodide", site.origin) == 1
        assert "far.example/pyodide-lock.json: a distribution has an https:// address" in capsys.readouterr().err
    assert run(home, "add", "fast", "--pyodide", site.origin) == 1
    assert "is no Pyodide distribution: its pyodide-lock.json can't be read" in capsys.readouterr().err
    for place in ("https://[half", f"{site.origin}/a b", "ftp://127.0.0.1/"):
        assert run(home, "add", "fast", "--pyodide", place) == 1
        assert place in capsys.readouterr().err


def test_a_compiled_wheel_of_another_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="come from a Pyodide distribution"):
        describe_pure(make_wheel(tmp_path, "built", tag=TAG), TARGET, "pip")


@pytest.mark.parametrize("name", ["--evil", "../x", "a b; rm", "http://x/y.whl", ""])
def test_only_names_are_taken(home: Path, name: str) -> None:
    with pytest.raises(SystemExit) if name.startswith("--") else pytest.MonkeyPatch.context():
        assert run(home, "add", name) == 2


@pytest.mark.parametrize("name", ["x.whl", "../a-1-py3-none-any.whl", ".a-1-py3-none-any.whl", "a-1-py3-none-any.zip"])
def test_a_wheel_has_the_name_of_a_wheel(name: str) -> None:
    with pytest.raises(PackageError):
        check_file_name(name)


def test_requirements_are_those_of_pyodides_python() -> None:
    assert needed("Typing_Extensions>=4; python_version >= '3.14'", TARGET) == "typing-extensions"
    assert needed("x; extra == 'more'", TARGET) is None
    assert needed("x; sys_platform == 'emscripten' and platform_machine == 'wasm32'", TARGET) == "x"
    assert needed("not a requirement !", TARGET) is None


def test_only_files_of_the_index_are_found_and_a_damaged_index_is_reported(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "own")
    index = PackageIndex(tmp_path / "home")
    package = Package("own", "1.0", wheel.name, "0" * 64, 5, ("own",), ())
    index.add([package], tmp_path)
    assert index.find("0" * 64, wheel.name) == index.folder / wheel.name
    assert index.find("1" * 64, wheel.name) is None and index.find("0" * 64, "index.json") is None
    (index.folder / wheel.name).unlink()
    (index.folder / wheel.name).symlink_to(wheel)
    assert index.find("0" * 64, wheel.name) is None
    many = [Package(f"p{n}", "1", f"p{n}-1-py3-none-any.whl", "0" * 64, 1, (), ()) for n in range(MOST_PACKAGES + 1)]
    with pytest.raises(PackageError, match="at most 512"):
        index.add(many, tmp_path)
    (index.folder / "index.json").write_text('{"packages": [{"name": "../x"}]}')
    with pytest.raises(PackageError, match="can't be read"):
        PackageIndex(tmp_path / "home").read()
