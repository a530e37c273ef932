"""docs/concepts/architecture.md: files and functions of its diagrams exist, and its layers are import-linter's."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = (ROOT / "relay" / "tabrelay", ROOT / "browser_pkg" / "tabserver")
DIAGRAMS = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
MAX_LINES = 150
MAX_TERMS = 40


def functions(file: str) -> set[str]:
    """Names in the form `Class.method`."""
    [path] = [folder / file for folder in FOLDERS if (folder / file).is_file()]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        f"{owner.name}.{member.name}"
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for member in owner.body
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=range(len(DIAGRAMS)))
def test_files_and_functions_of_a_diagram_exist(diagram: str) -> None:
    files = dict(re.findall(r"participant (\w+) as (\S+)", diagram))
    steps = re.findall(r"(\w+)->>(\w+): (\S+)", diagram)
    assert files and steps
    assert [step for step in steps if step[2] not in functions(files[step[1]])] == []


def test_there_is_a_diagram_for_each_path() -> None:
    assert len(DIAGRAMS) == 5


def test_the_page_is_short() -> None:
    terms = [
        term
        for row in re.findall(r"^\| ([^|]+) \|", PAGE.partition("## Glossary")[2], re.MULTILINE)
        for term in row.split(",")
    ]
    assert len(PAGE.splitlines()) <= MAX_LINES
    assert len(terms) - 1 <= MAX_TERMS


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    drawn = " ".join(
        re.sub(r"^(relay|browser)\s", "", line).strip()
        for line in re.findall(r"^(?:relay|browser| {11}→).*$", PAGE, re.MULTILINE)
    )
    for package in ("tabrelay", "tabserver"):
        [layers] = [contract["layers"] for contract in contracts if contract.get("containers") == [package]]
        assert " → ".join(layers) in drawn
