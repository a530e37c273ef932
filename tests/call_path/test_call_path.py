"""One `tools/call` enters few files, and none of them repeatedly."""

from __future__ import annotations

import os

import pytest

from tests.call_path import report
from tests.call_path.limits import PRESENT, Limit, goal
from tests.call_path.paths import PATHS, CallPath, Measured, measure


@pytest.fixture(scope="module")
async def results(tmp_path_factory: pytest.TempPathFactory) -> dict[CallPath, Measured]:
    return {result.path: result for result in await measure(tmp_path_factory.mktemp("call_path"))}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
async def test_a_call_stays_within_its_limits(path: CallPath, results: dict[CallPath, Measured]) -> None:
    result, limit = results[path], PRESENT[path]
    found = Limit(len(result.files), result.most_in, result.most_out)
    assert all(number <= most for number, most in zip(found, limit, strict=True)), (
        f"{path.name}: {found}, allowed are {limit}. See `python -m tests.call_path --short --path '{path.name}'`."
    )


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
async def test_a_call_is_followed_from_the_socket_to_the_tool_and_back(
    path: CallPath, results: dict[CallPath, Measured]
) -> None:
    trace = results[path].trace
    assert {phase for phase, *_ in trace.relay} == {"in", "out"}
    assert trace.worker_js
    assert bool(trace.page_js) == (path.tool == "in_page")
    # Python of the worker does not run for calls that JavaScript was granted, except its own tools.
    is_granted = path.is_fast and path.is_modern
    assert bool(trace.worker) == (not is_granted or path.tool == "in_worker")
    assert is_granted or {phase for phase, *_ in trace.worker} == {"in", "out"}


def test_no_limit_is_below_its_goal() -> None:
    assert set(PRESENT) == set(PATHS)
    assert all(number >= least for path in PATHS for number, least in zip(PRESENT[path], goal(path), strict=True))


async def test_the_page_lists_the_files_of_each_path(results: dict[CallPath, Measured]) -> None:
    text = report.page(list(results.values()))
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        report.PAGE.write_text(text, encoding="utf-8")
    listed, found = report.files_of(report.PAGE.read_text(encoding="utf-8")), report.files_of(text)
    differences = {name: sorted(listed.get(name, set()) ^ files) for name, files in found.items()}
    assert not any(differences.values()), (
        f"Write docs/project/call-path.md anew (CONTRIBUTING.md); it differs in {differences}"
    )
