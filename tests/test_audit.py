"""`make audit`: a package that could not be checked counts as a problem."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parent.parent / ".ci" / "audit.py"
_spec = importlib.util.spec_from_file_location("audit", FILE)
assert _spec is not None and _spec.loader is not None
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

GOOD = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
BAD = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("report", "problems"),
    [
        ({"dependencies": [GOOD]}, []),
        ({"dependencies": [GOOD, SKIPPED]}, ["1 of 2 packages were skipped (b): not found"]),
        ({"dependencies": [BAD]}, ["c 2: PYSEC-1, mended in 3"]),
        ({"dependencies": []}, ["pip-audit looked at no package at all"]),
        (None, ["pip-audit looked at no package at all"]),
    ],
)
def test_a_python_package_that_was_skipped_is_a_problem(report: Any, problems: list[str]) -> None:
    assert audit.python_problems(report) == problems


def whole(total: int, **vulnerabilities: Any) -> dict[str, Any]:
    metadata = {"dependencies": {"total": total}}
    return {"auditReportVersion": 2, "vulnerabilities": vulnerabilities, "metadata": metadata}


@pytest.mark.parametrize(
    ("report", "problems"),
    [
        (whole(3), []),
        (whole(3, ws={"severity": "high"}), ["ws: high"]),
        (whole(0), ["npm looked at no package at all"]),
        ({"error": {"code": "ENOLOCK"}}, ["npm's advisories can't be asked: ENOLOCK"]),
        ({"message": "404 Not Found"}, ["npm's advisories can't be asked: 404 Not Found"]),
        (None, ["npm's advisories can't be asked: no report"]),
    ],
)
def test_a_registry_that_cannot_be_asked_is_a_problem(report: Any, problems: list[str]) -> None:
    assert audit.node_problems(report) == problems


@pytest.mark.parametrize(
    ("versions", "problems"),
    [
        (["0.1.16", "0.2.0-alpha.2", "0.2.0-alpha.12"], []),
        (["0.2.0-alpha.12", "0.2.0-alpha.13"], [f"{audit.SUITE} 0.2.0-alpha.13 is newer than 0.2.0-alpha.12"]),
        (["0.2.0-alpha.12", "0.2.0-beta.1"], [f"{audit.SUITE} 0.2.0-beta.1 is newer than 0.2.0-alpha.12"]),
        (["0.2.0", "0.2.0-alpha.12"], [f"{audit.SUITE} 0.2.0 is newer than 0.2.0-alpha.12"]),
        (None, ["npm could not say which versions of @modelcontextprotocol/conformance there are"]),
    ],
)
def test_a_newer_conformance_suite_is_reported(versions: Any, problems: list[str]) -> None:
    assert audit.suite_problems("0.2.0-alpha.12", versions) == problems
