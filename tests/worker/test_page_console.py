"""Console lines of Python: they reach the pages that they concern, a few at a time, up to a bound."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tabserver.handlers.failures import FailureLog
from tabserver.rpc import Refusal
from tabserver.schema.types import NotJson
from tabserver.worker.page_console import MOST_CHARACTERS, MOST_LINES, MOST_WARNED, PageConsole

TOOLS, OTHER = "http://localhost:1/tools.py", "http://localhost:1/other.py"


class Rig:
    """A console with three pages. `run` runs code as if it was in a file of a page."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.console = PageConsole(lambda delay_s, function: self.due.append(function))
        self.sent: dict[str, list[tuple[str, str]]] = {}
        for page, urls in (("tools", [TOOLS]), ("other", [OTHER]), ("none", [])):
            self.sent[page] = []
            self.console.attach(page, urls, partial(self._receive, page))

    def _receive(self, page: str, message: dict[str, Any]) -> None:
        assert message["t"] == "console"
        self.sent[page].append((message["level"], message["text"]))

    def run(self, code: str, file: str) -> None:
        exec(compile(code, file, "exec"), {"out": lambda text: self.console.printed("stdout", text), "rig": self})

    def flush(self) -> None:
        due, self.due = self.due, []
        for function in due:
            function()


def test_what_a_file_prints_reaches_the_pages_that_named_it() -> None:
    rig = Rig()
    rig.run("out('one'); out(' two\\nthree\\n')", TOOLS)
    assert rig.sent["tools"] == [] and len(rig.due) == 1, "lines are sent together"
    rig.flush()
    assert rig.sent["tools"] == [("log", "tools.py: one two"), ("log", "tools.py: three")]
    assert rig.sent["other"] == rig.sent["none"] == []


def test_what_belongs_to_no_named_file_reaches_all_pages_with_python() -> None:
    rig = Rig()
    rig.console.printed("stderr", "careful\n")
    rig.run("out('helper\\n')", "http://localhost:1/helper.py")
    rig.flush()
    expected = [("warn", "careful"), ("log", "helper.py: helper")]
    assert rig.sent["tools"] == rig.sent["other"] == expected and rig.sent["none"] == []


def test_a_line_without_its_end_is_sent_after_a_moment_and_a_page_that_left_gets_none() -> None:
    rig = Rig()
    rig.run("out('half')", TOOLS)
    rig.flush()
    assert rig.sent["tools"] == [("log", "tools.py: half")]
    rig.console.detach("tools")
    rig.run("out('more\\n')", TOOLS)
    rig.flush()
    assert len(rig.sent["tools"]) == 1


def test_what_python_prints_is_bounded() -> None:
    rig = Rig()
    rig.run(f"for i in range({MOST_LINES} + 5): out('x\\n')", TOOLS)
    rig.flush()
    assert len(rig.sent["tools"]) == MOST_LINES + 1
    assert rig.sent["tools"][-1] == ("warn", "5 more lines of Python are in the worker's console only.")
    rig.sent["tools"].clear()
    rig.run(f"out('y' * {MOST_CHARACTERS} + '\\n'); out('z' * {MOST_CHARACTERS * 9})", TOOLS)
    rig.flush()
    assert sum(len(text) for _, text in rig.sent["tools"]) < 3 * MOST_CHARACTERS


def test_a_tool_without_a_description_is_named_once() -> None:
    rig = Rig()
    for _ in range(2):
        rig.console.check_tools([{"name": "add", "description": "Adds."}, {"name": "bare"}])
    rig.flush()
    [(level, text)] = rig.sent["tools"]
    assert level == "warn" and text.startswith('Tool "bare" has no description. ') and text.endswith(" [TR481]")


def test_tools_without_a_description_are_named_up_to_a_number() -> None:
    """Code may make new names without end."""
    rig = Rig()
    rig.console.check_tools({"name": f"bare {number}"} for number in range(2 * MOST_WARNED))
    assert len(rig.console._warned) == MOST_WARNED
    rig.flush()


def test_a_failure_has_the_traceback_from_the_first_file_of_a_page_on() -> None:
    received: list[tuple[str, frozenset[str]]] = []
    log = FailureLog()
    log.listen(lambda text, files: received.append((text, files)))
    names: dict[str, Any] = {}
    exec(compile("def divide():\n    return 1 / 0\n", TOOLS, "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["divide"]()
    log.report("tool divide", caught.value)
    [(text, files)] = received
    assert text.startswith('Tool "divide" failed. [TR474]\nTraceback (most recent call last):\n')
    assert f'File "{TOOLS}", line 2, in divide' in text and text.endswith("ZeroDivisionError: division by zero")
    assert files == {TOOLS} and "test_page_console" not in text


def test_a_failed_import_has_the_advice_of_the_interpreters_owner() -> None:
    received: list[str] = []
    log = FailureLog()
    log.listen(lambda text, files: received.append(text), lambda error: f"Run: tabrelay packages add {error.name}")
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("no_such_package")
    log.report("tool plot", caught.value)
    assert received[0].endswith("No module named 'no_such_package'\nRun: tabrelay packages add no_such_package")
    assert log.text_of(caught.value) == (
        "ModuleNotFoundError: No module named 'no_such_package'. Run: tabrelay packages add no_such_package"
    )
    assert log.text_of(ValueError("no")) == "ValueError: no" and log.text_of(ValueError()) == "ValueError"


def test_a_value_without_a_json_form_is_one_sentence_and_a_refusal_is_no_failure() -> None:
    received: list[str] = []
    log = FailureLog()
    log.listen(lambda text, files: received.append(text))
    log.report("tool measure", NotJson("result.x: nan has no JSON form. Return None."))
    log.report("resource a:b", Refusal(-32602, "There is none."))
    text = 'Tool "measure" returned what can\'t be sent: result.x: nan has no JSON form. Return None.'
    assert received == [f"{text} [TR132]"]
