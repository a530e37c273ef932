"""docs/reference/limits.md names every container that grows while a program runs, its bound, and a test that reaches
the bound."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from tabrelay.config.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "limits.md"
PACKAGES = {"relay/tabrelay": "", "browser_pkg/tabserver": "tabserver/"}
# Programs that run once and end, and values that are created from one file.
SHORT_LIVED = ("cli/", "config/", "bridge/oauth/", "tabserver/micropython/")
GROWING = {
    *("dict", "list", "set", "deque", "OrderedDict", "defaultdict", "Counter", "bytearray", "Queue"),
    *("WeakSet", "WeakKeyDictionary", "WeakValueDictionary"),
}


def _is_growing(value: ast.expr | None) -> bool:
    """Whether it is an empty container."""
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            factory = next((word.value for word in keywords if word.arg == "default_factory"), None)
            return factory is not None and any(
                isinstance(node, ast.Name) and node.id in GROWING for node in ast.walk(factory)
            )
        case ast.Call(func=func):
            func = func.value if isinstance(func, ast.Subscript) else func
            name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
            return name in GROWING and not any(
                isinstance(argument, ast.GeneratorExp | ast.ListComp) for argument in value.args
            )
    return False


def _assigned(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    match node:
        case ast.Assign(targets=[target], value=value):
            return target, value
        case ast.AnnAssign(target=target, value=value):
            return target, value
    return None, None


def _of_class(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        target, value = _assigned(node)
        if not _is_growing(value):
            continue
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            yield target.attr
        elif isinstance(target, ast.Name) and node in owner.body:
            yield target.id


@cache
def containers() -> frozenset[str]:
    """Names in the form `module.Class.attribute`, or `module.name` for one of a module."""
    found = set()
    for folder, prefix in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = prefix + path.relative_to(ROOT / folder).as_posix()
            if place.startswith(SHORT_LIVED):
                continue
            module = place.removesuffix(".py").replace("/", ".")
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found |= {f"{module}.{node.name}.{name}" for name in _of_class(node)}
            for node in tree.body:
                target, value = _assigned(node)
                if isinstance(target, ast.Name) and _is_growing(value):
                    found.add(f"{module}.{target.id}")
    return frozenset(found)


@cache
def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    return [row for row in cells if len(row) == 4]


def test_every_container_that_grows_is_in_the_table() -> None:
    """Fails for a new container without a row: state what it grows with and what bounds it, or why it does not grow."""
    listed = [name for row in rows() for name in re.findall(r"`([\w.]+)`", row[0])]
    assert sorted(containers() - set(listed)) == []
    assert sorted(set(listed) - containers()) == []
    assert sorted({name for name in listed if listed.count(name) > 1}) == []


@cache
def _constants() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    return frozenset(name for text in texts for name in re.findall(r"^([A-Z][A-Z_]+)\b[^=\n]* = ", text, re.MULTILINE))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_every_bound_is_a_setting_or_a_constant_that_exists(row: list[str]) -> None:
    settings = {item.name for item in fields(Settings)}
    named = re.findall(r"`(\w+)`", row[2])
    assert row[1] and row[2]
    assert [name for name in named if name not in settings and name not in _constants()] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_every_bound_that_a_client_can_reach_has_a_test_that_does(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[3])
    assert named or row[3].startswith("none:"), "name the test that reaches the bound, or state why there is none"
    gone = [f"{path}::{test}" for path, test in named if f"def {test}(" not in (ROOT / path).read_text()]
    assert gone == []


def test_every_bound_is_named_by_a_test() -> None:
    """A test that uses the name of the bound follows it when the bound is changed."""
    own = {Path(__file__), ROOT / "tests" / "test_docs.py"}
    files = [path for path in (ROOT / "tests").rglob("*.py") if path not in own]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    bounds = {name for row in rows() if not row[3].startswith("none:") for name in re.findall(r"`(\w+)`", row[2])}
    # For a URL, in place of MAX_CHILDREN, which is for programs.
    assert sorted(bounds - words - {"MAX_SESSIONS"}) == []


# A cached function with arguments; without any, it holds one value.
UNBOUNDED = re.compile(r"@(?:functools\.)?(?:cache|lru_cache)\s*\n\s*def \w+\((?!\))|lru_cache\((?:maxsize=)?None\)")


def test_every_cache_of_a_function_has_a_size() -> None:
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if UNBOUNDED.search(path.read_text(encoding="utf-8"))] == []
