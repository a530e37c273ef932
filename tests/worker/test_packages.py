"""Packages of the worker: order, progress, which are already installed, and advice for missing ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabserver.worker.packages import MOST_PACKAGES, Packages


class Installer:
    """A relay with packages, and an interpreter that keeps their names."""

    def __init__(self) -> None:
        self.rows = [
            {"name": "outer", "version": "1", "size": 10, "imports": ["outer"], "depends": ["inner", "gone"]},
            {"name": "inner", "version": "2", "size": 20, "imports": ["inner_one"], "depends": ["outer"]},
            {"name": "broken", "version": "3", "size": 30, "imports": ["broken"], "depends": []},
        ]
        self.installed: list[str] = []
        self.asked = 0
        self.is_down = False

    async def index(self) -> list[dict[str, Any]]:
        self.asked += 1
        if self.is_down:
            raise OSError("the relay answers 403")
        return self.rows

    async def install(self, row: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        if row["name"] == "broken":
            raise OSError("broken is damaged")
        progress(5, row["size"])
        self.installed.append(row["name"])

    def is_installed(self, name: str) -> bool:
        return name in self.installed

    def in_distribution(self, name: str) -> tuple[str, bool] | None:
        return {"numpy": ("numpy", True), "bs4": ("beautifulsoup4", False)}.get(name)


def make() -> tuple[Packages, Installer, list[dict[str, Any]]]:
    installer, told = Installer(), list[dict[str, Any]]()
    return Packages(installer, told.append), installer, told


async def test_what_a_package_needs_is_installed_first_and_once() -> None:
    packages, installer, told = make()
    assert await packages.has("outer") and not await packages.has("words") and not await packages.has("json")
    await packages.load(["outer"])
    await packages.load(["outer", "inner_one"])
    assert installer.installed == ["inner", "outer"] and installer.asked == 1
    assert [(each["name"], each["stage"], each.get("loaded")) for each in told] == [
        ("inner", "download", 0),
        ("inner", "download", 5),
        ("inner", "ready", None),
        ("outer", "download", 0),
        ("outer", "download", 5),
        ("outer", "ready", None),
    ]


async def test_a_missing_package_of_a_page_is_reported_with_the_command() -> None:
    packages, _, told = make()
    await packages.require(["Outer", "numpy", "bs4", "nothing", "broken"])
    failed = {each["name"]: each["message"] for each in told if each["stage"] == "failed"}
    assert failed["numpy"].endswith("tabrelay packages add numpy --pyodide FOLDER_OR_URL")
    assert failed["bs4"].endswith("tabrelay packages add beautifulsoup4")
    assert "no file nothing.py beside it" in failed["nothing"] and failed["broken"] == "broken is damaged"
    assert "Outer" not in failed


async def test_an_import_that_fails_during_a_call_has_the_command_that_adds_the_package() -> None:
    packages, installer, _ = make()
    await packages.load(["outer"])

    def advice(name: str | None) -> str:
        return packages.advice_after(ModuleNotFoundError(f"No module named '{name}'", name=name))

    assert advice("numpy.linalg") == (
        "numpy is compiled. Add it to the relay, and reload the page: "
        "tabrelay packages add numpy --pyodide FOLDER_OR_URL"
    )
    assert advice("nothing").endswith("Add it to the relay, and reload the page: tabrelay packages add nothing")
    assert advice("tkinter") == "tkinter is a part of Python that browsers do not have. Import it where it exists only."
    assert 'connect({ packages: ["broken"] })' in advice("broken"), "the relay has it"
    assert advice("outer.part") == "", "only a part of an installed package is missing"
    assert advice(None) == ""
    installer.is_down = True
    await packages.refresh()
    assert "the relay answers 403" in advice("numpy")


async def test_a_package_that_was_added_later_is_found_when_code_imports_it() -> None:
    packages, installer, _ = make()
    await packages.load(["json", "outer"])
    assert installer.asked == 1
    installer.rows.append({"name": "late", "version": "1", "size": 1, "imports": ["late"], "depends": []})
    await packages.load(["late"])
    assert installer.installed == ["inner", "outer", "late"] and installer.asked == 2


async def test_a_relay_that_gives_no_index_is_the_advice() -> None:
    packages, installer, told = make()
    installer.is_down = True
    await packages.require(["outer"])
    assert "the relay answers 403" in told[0]["message"]
    installer.is_down = False
    await packages.require(["outer"])
    assert installer.installed == ["inner", "outer"]


async def test_the_number_of_installed_packages_is_bounded() -> None:
    packages, installer, _ = make()
    names = [f"p{number}" for number in range(MOST_PACKAGES + 5)]
    installer.rows = [{"name": n, "version": "1", "size": 1, "imports": [n], "depends": []} for n in names]
    await packages.load(names)
    assert installer.installed == names[:MOST_PACKAGES]
