"""Tests that start a second process or a browser: found in their code, and checked while they run.

A pytest plugin. With `--quick` it skips every test whose code can start a process: its own code, that of its fixtures
and parameters, and everything that these name in the modules of `tests`. Tests of random examples then take few of
them. A test whose process is started by product code has the marker `starts_process`. A test that starts a process
unexpectedly fails, with or without `--quick`, so the choice stays right. It does not inspect product code.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import hypothesis
import pytest

HERE: Final = Path(__file__).parent
# Names in code that starts a process; `executable` is `sys.executable`, for a program that other code will start.
STARTERS: Final = frozenset(
    {"subprocess", "create_subprocess_exec", "create_subprocess_shell", "async_playwright", "executable", "fork"}
)
AUDITED: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn"})
# Folders in which every test starts a process; they are not even collected.
NEVER_QUICK: Final = ("e2e", "browsers", "conformance")
MARKER: Final = "starts_process"
# For a test with random examples. `make test` takes as many as the test requires.
QUICK_EXAMPLES: Final = 20
QUICK_HUNT: Final = 100  # for the tests that count what their examples have reached

_running: pytest.Item | None = None
_started: list[str] = []
_verdicts: dict[int, bool] = {}
_kept_alive: list[object] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that start no process and no browser")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: product code starts a process in this test")
    sys.addaudithook(_audit)
    if config.getoption("--quick"):
        os.environ.setdefault("TABRELAY_EXAMPLES", str(QUICK_HUNT))


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in AUDITED and _running is not None:
        _started.append(f"{event} {arguments[:1]!r}")


def pytest_ignore_collect(collection_path: Any, config: pytest.Config) -> bool | None:
    is_left_out = config.getoption("--quick") and collection_path.is_dir() and collection_path.name in NEVER_QUICK
    return True if is_left_out else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        slow = [item for item in items if may_start_process(item)]
        config.hook.pytest_deselected(items=slow)
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]
        for item in items:
            _take_few_examples(item)


def _take_few_examples(item: pytest.Item) -> None:
    test: Any = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    if hasattr(test, "hypothesis"):
        chosen: Any = test._hypothesis_internal_use_settings or hypothesis.settings.default
        few = min(chosen.max_examples, QUICK_EXAMPLES)
        test._hypothesis_internal_use_settings = hypothesis.settings(chosen, max_examples=few)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    global _running
    _running = item
    _started.clear()
    try:
        return (yield)
    finally:
        _running = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    report = yield
    if _started and report.passed and not may_start_process(item):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} starts a process ({_started[0]}), which its code does not tell: mark it with "
            f"`pytest.mark.{MARKER}`, and `make quick` leaves it out"
        )
    _started.clear()
    return report


def may_start_process(item: pytest.Item) -> bool:
    if item.get_closest_marker(MARKER) is not None:
        return True
    if not isinstance(item, pytest.Function):
        return False
    roots: list[object] = [item.obj]
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        roots += [definition.func for definition in definitions]
    call = getattr(item, "callspec", None)
    roots += call.params.values() if call is not None else ()
    return any(_starts(root) for root in roots)


def _starts(root: object) -> bool:
    """Whether the code of a value, or code that this names, can start a process."""
    seen: dict[int, object] = {id(root): root}
    waiting = [root]
    found = False
    while waiting and not found:
        value = waiting.pop()
        known = _verdicts.get(id(value))
        if known is None:
            names, reached = _read(value)
            found = not STARTERS.isdisjoint(names)
            fresh = {id(one): one for one in reached if id(one) not in seen}
            seen |= fresh
            waiting += fresh.values()
        else:
            found = known
    _kept_alive.append(seen if not found else root)  # an id can be reused once its object is gone
    _verdicts.update({id(root): True} if found else dict.fromkeys(seen, False))
    return found


def _read(value: object) -> tuple[Iterable[str], list[object]]:
    """The names in its code, and the values of the suite that they refer to."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        return (), [one for one in (value.fget, value.fset) if one is not None]
    if isinstance(value, dict):
        return (), [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return (), [*value]
    if inspect.isclass(value):
        return (), [*vars(value).values(), *value.__bases__] if _is_ours(value) else []
    function = _function(value)
    if function is None:
        return (), [type(value)] if _is_ours(type(value)) else []
    if not _is_ours(function):
        return (), []
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return names, [*cells, *_named(names, function.__globals__)]


def _function(value: object) -> FunctionType | None:
    inner = getattr(getattr(value, "hypothesis", None), "inner_test", value)
    bound = getattr(inner, "__func__", inner)
    found = inspect.unwrap(bound) if isinstance(bound, Callable) else bound  # type: ignore[arg-type]
    return found if isinstance(found, FunctionType) else None


def _named(names: Iterable[str], where: dict[str, Any]) -> list[object]:
    found: list[object] = []
    for name in names:
        value = where.get(name)
        if isinstance(value, ModuleType):
            if _is_module_ours(value.__name__):
                found += [vars(value)[other] for other in names if other in vars(value)]
        elif value is not None and not isinstance(value, str | bytes | int | float):
            found.append(value)
    return found


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_ours(value: Any) -> bool:
    return _is_module_ours(str(getattr(value, "__module__", "")))


@functools.cache
def _is_module_ours(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and Path(file).is_relative_to(HERE)
