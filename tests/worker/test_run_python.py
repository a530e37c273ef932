"""Tool `run_python`: results, time limits, and names that are kept from call to call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tabserver.handlers.content import Image
from tabserver.handlers.context import Outcome
from tabserver.handlers.failures import handler_failures
from tabserver.handlers.toolbox import Toolbox, default_toolbox
from tabserver.handlers.tools import ToolResult
from tabserver.worker.run_python import PythonRunner, Ran, offer_run_python
from tests.support.fake_request import RecordingRequest


@pytest.fixture(autouse=True)
def streams() -> Iterator[None]:
    """Runs replace the streams of the process: restore them."""
    before = sys.stdout, sys.stderr
    yield
    sys.stdout, sys.stderr = before


def ran(result: ToolResult[Ran]) -> Ran:
    assert result.structured is not None
    return result.structured


async def run(code: str, state: dict[str, Any] | None = None, **limits: Any) -> Ran:
    notebook = PythonRunner(limits.pop("timeout_s", 10), limits.pop("max_output", 1000))
    return ran(await notebook.run(code, {} if state is None else state, **limits))


async def test_a_run_gives_what_was_printed_and_the_last_expression() -> None:
    got = await run("import sys\nprint('a')\nprint('b', file=sys.stderr)\n[1, 'x']")
    assert got == Ran("a\n", "b\n", "[1, 'x']")
    assert await run("x = 3") == Ran("", "", None)
    assert await run("None") == Ran("", "", None)
    assert await run("") == Ran("", "", None)


async def test_packages_that_the_code_imports_are_installed_before_it_runs() -> None:
    asked: list[str] = []

    async def install(names: Iterable[str]) -> None:
        asked.extend(sorted(names))

    notebook = PythonRunner(10, 1000, install)
    got = ran(await notebook.run("import os.path, missing_package", {}))
    assert asked == ["missing_package", "os"] and got.error is not None and "missing_package" in got.error
    assert ran(await notebook.run("import (", {})).error is not None


async def test_names_are_kept_for_each_caller_until_it_wants_them_gone() -> None:
    notebook, one, other = PythonRunner(10, 1000), {}, {}  # type: ignore[var-annotated]
    await notebook.run("x = 1\ndef f(): return x", one)
    await notebook.run("x = 2", other)
    assert ran(await notebook.run("f()", one)).result == "1"
    assert ran(await notebook.run("x", other)).result == "2"
    gone = ran(await notebook.run("x", one, reset=True))
    assert gone.error is not None and "NameError: name 'x' is not defined" in gone.error


async def test_await_works_at_the_top_level_and_in_the_last_expression() -> None:
    got = await run("import asyncio\nawait asyncio.sleep(0)\nasync def f(): return 5\nawait f()")
    assert got.result == "5"


async def test_an_error_is_the_traceback_of_the_code_alone() -> None:
    result = await PythonRunner(10, 1000).run("print('before')\ndef f():\n    return 1 / 0\nf()", {})
    assert result.is_error
    error = ran(result).error
    assert error is not None
    assert error.startswith("Traceback (most recent call last):\n")
    assert "    return 1 / 0" in error and error.endswith("ZeroDivisionError: division by zero\n")
    assert "notebook.py" not in error
    assert isinstance(result.content, list)
    assert str(result.content[0]).startswith("before\nTraceback")


async def test_of_endless_recursion_the_last_frames_are_shown() -> None:
    code = (
        "def f(n):\n    if n == 0: raise ValueError('deep')\n    return g(n - 1)\ndef g(n):\n    return f(n)\nf(20_000)"
    )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        error = ran(await PythonRunner(10, 1_000_000).run(code, {})).error
    finally:
        sys.setrecursionlimit(limit)
    assert error is not None and error.endswith("ValueError: deep\n")
    assert 900 < error.count("in f") + error.count("in g") <= 1_000


@pytest.mark.parametrize("code", ["1 +", "raise SystemExit(3)", "raise KeyboardInterrupt", "import nothing_such"])
async def test_code_that_can_not_run_or_wants_to_leave_is_an_error_like_any_other(code: str) -> None:
    error = (await run(code)).error
    assert error is not None and "notebook.py" not in error and "ast.py" not in error


async def test_output_and_results_have_a_bound() -> None:
    got = await run("print('x' * 5000)\n'y' * 5000", max_output=100)
    assert got.stdout == "x" * 100 + "… (4,901 characters left out)"
    assert got.result is not None and got.result.startswith("'yyy") and "4,902 characters left out" in got.result
    failed = await run("raise ValueError('z' * 5000)", max_output=100)
    assert failed.error is not None and len(failed.error) < 200


async def test_code_that_waits_too_long_is_stopped_with_an_error() -> None:
    state: dict[str, Any] = {}
    got = await run("import asyncio\nprint('begun')\nawait asyncio.sleep(60)", state, timeout_s=0.05)
    assert got.stdout == "begun\n" and got.error == "TimeoutError: the code was stopped after 0.05 s"
    assert (await run("1 + 1", state)).result == "2"


async def test_a_timeout_of_the_code_itself_is_its_own_error() -> None:
    got = await run("import asyncio\nasync with asyncio.timeout(0.01): await asyncio.sleep(9)")
    assert got.error is not None and "was stopped" not in got.error and "TimeoutError" in got.error


async def test_a_cancelled_run_ends_inside_the_code() -> None:
    state: dict[str, Any] = {}
    notebook = PythonRunner(10, 1000)
    waits = "import asyncio\ntry:\n    await asyncio.sleep(60)\nexcept asyncio.CancelledError:\n    seen = 1\n    raise"
    task = asyncio.create_task(notebook.run(waits, state))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran(await notebook.run("seen", state)).result == "1"


async def test_runs_of_two_callers_keep_their_output_apart() -> None:
    notebook = PythonRunner(10, 1000)
    code = "import asyncio\nfor _ in range(3):\n    print({!r})\n    await asyncio.sleep(0)"
    a, b = await asyncio.gather(notebook.run(code.format("a"), {}), notebook.run(code.format("b"), {}))
    assert (ran(a).stdout, ran(b).stdout) == ("a\n" * 3, "b\n" * 3)


async def test_runs_of_one_caller_come_one_after_the_other() -> None:
    notebook, state = PythonRunner(10, 1000), {}  # type: ignore[var-annotated]
    first = notebook.run("import asyncio\nx = 1\nawait asyncio.sleep(0.01)\nx = 2", state)
    _, second = await asyncio.gather(first, notebook.run("x", state))
    assert ran(second).result == "2"


async def test_a_picture_as_the_last_expression_is_a_picture() -> None:
    result = await PythonRunner(10, 1000).run("from tabserver import Image\nprint('a dot')\nImage(b'PNG')", {})
    assert result.content == ["a dot", Image(b"PNG")]
    drawn = await PythonRunner(10, 1000).run("class P:\n    def _repr_png_(self): return b'PNG'\nP()", {})
    assert drawn.content == [Image(b"PNG")]


@pytest.mark.parametrize("member", ["__repr__", "_repr_png_"])
async def test_a_value_that_can_not_be_shown_is_an_error_of_the_code(member: str) -> None:
    got = await run(f"class Bad:\n    def {member}(self): raise ValueError('no')\nBad()")
    assert got.error is not None and got.error.endswith("ValueError: no\n")


async def test_code_that_cancels_itself_was_not_cancelled_by_its_caller() -> None:
    got = await run("import asyncio\nraise asyncio.CancelledError('mine')")
    assert got.error is not None and "CancelledError: mine" in got.error


async def test_code_that_takes_the_streams_away_takes_them_from_itself_alone() -> None:
    notebook, state = PythonRunner(10, 1000), {}  # type: ignore[var-annotated]
    await notebook.run("import sys\nsys.stdout = None\nprint('lost')", state)
    assert ran(await notebook.run("print('back')", state)).stdout == "back\n"


async def test_the_tool_is_not_listed_unless_it_is_offered_and_is_described() -> None:
    assert "run_python" not in [item["name"] for item in default_toolbox.tools()]
    box = Toolbox()
    offer_run_python(toolbox=box, timeout_s=5)
    [offered] = box.tools()
    assert offered["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    assert sorted(offered["inputSchema"]["properties"]) == ["code", "reset"]
    assert offered["inputSchema"]["required"] == ["code"]
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    box.call("run_python", {"code": "6 * 7"}, RecordingRequest(), ended.set_result)
    outcome = await asyncio.wait_for(ended, 10)
    assert isinstance(outcome, dict)
    assert outcome["structuredContent"] == {"stdout": "", "stderr": "", "result": "42", "error": None}
    assert outcome["content"] == [{"type": "text", "text": "42"}]


@pytest.mark.parametrize("limits", [{"timeout_s": 0}, {"max_output": -1}])
def test_limits_that_allow_nothing_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        offer_run_python(toolbox=Toolbox(), **limits)


async def test_a_package_that_is_missing_has_the_command_that_adds_it() -> None:
    handler_failures.listen(lambda text, files: None, lambda error: f"Run: tabrelay packages add {error.name}")
    try:
        error = (await run("import missing_package")).error
    finally:
        handler_failures.listen(lambda text, files: None)
    assert error is not None
    assert error.endswith("No module named 'missing_package'\nRun: tabrelay packages add missing_package\n")
