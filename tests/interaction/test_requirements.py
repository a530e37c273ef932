"""Every requirement has a test, and every test of client-facing behaviour names its requirement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interaction.requirements import REQUIREMENTS

TESTS = Path(__file__).parents[1]
# The files that test client-facing behaviour. A test there without a requirement has no reason.
CLIENT_FACING = (
    *(
        f"faces/mcp/test_{name}.py"
        for name in ("modern", "legacy", "resumable_response", "sessions", "http_sse", "offline_answers")
    ),
    "http/test_param_headers.py",
    "behaviour/test_random_requests.py",
    "behaviour/test_raw_requests.py",
    "behaviour/clients/test_clients.py",
    "behaviour/clients/test_errors.py",
    "conformance/test_conformance.py",
)


def found_in(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The tests of a file, and the requirements that each names."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            named = [
                ast.literal_eval(mark.args[0])
                for mark in node.decorator_list
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement"
            ]
            yield node.name, named


def test_no_requirement_is_there_twice() -> None:
    ids = [requirement.id for requirement in REQUIREMENTS]
    assert len(ids) == len(set(ids))


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    marked = {id for path in TESTS.rglob("test_*.py") for _, named in found_in(path) for id in named}
    assert marked == {requirement.id for requirement in REQUIREMENTS}


@pytest.mark.parametrize("name", CLIENT_FACING)
def test_every_test_of_what_a_client_sees_names_its_requirement(name: str) -> None:
    assert [test for test, named in found_in(TESTS / name) if not named] == []
