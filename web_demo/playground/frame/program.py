"""Python programs of the playground: each run executes a source text in a new module and replaces the tools before.

A program that fails changes nothing: the tools of the last one stay. Faults are returned as JSON, with the line. Runs
in a worker of the sandboxed frame; `python_worker.js` loads this file. Top-level `await` is not supported, as in
modules of a relay's worker.
"""

from __future__ import annotations

import ast
import json
import linecache
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from tabserver.handlers.toolbox import default_toolbox
from tabserver.page import offer
from tabserver.worker.output_streams import replace_streams
from tabserver.worker.snapshot_reset import reset_after_snapshot

NAME: Final = "program"
FILE: Final = "program.py"
NO_TOOL: Final = "This program offers no tool. Write @tool above a function (from tabserver import tool)."


class NoToolError(Exception):
    """The program ran to its end and offered nothing."""


def start(connect: Any, printed: Callable[[str, str], None]) -> None:
    """Once, before the first run: from now on, the tools of the programs are offered and output is shown."""
    reset_after_snapshot()
    replace_streams(printed)
    offer(connect, server="playground")


def run(source: str) -> str:
    """Execute a program. The fault as JSON; `null`: there is none, and its tools are offered."""
    fault = None
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    before = sys.modules.get(NAME)
    module = sys.modules[NAME] = ModuleType(NAME)
    try:
        code = compile(source, FILE, "exec", dont_inherit=True)
        with default_toolbox.replacing(lambda offer: True):
            exec(code, module.__dict__)
            if not default_toolbox.tools():
                raise NoToolError
    except SyntaxError as error:
        fault = _describe(error, error.lineno or 0, error.offset or 0)
    except NoToolError:
        fault = _fault(NO_TOOL, _first_function(source))
    except (Exception, SystemExit) as error:
        fault = _describe(error, _line_of(error))
    if fault is not None and before is not None:
        sys.modules[NAME] = before
    return json.dumps(fault)


def _describe(error: BaseException, line: int, column: int = 0) -> dict[str, Any]:
    lines = traceback.format_exception_only(error)
    return _fault(lines[-1].strip(), line, column)


def _fault(message: str, line: int, column: int = 0) -> dict[str, Any]:
    return {"message": message, "line": line, "column": column}


def _line_of(error: BaseException) -> int:
    """The line of the program that was last entered when the error was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    return frames[-1].lineno or 0 if frames else 0


def _first_function(source: str) -> int:
    tree = ast.parse(source)
    found = (node.lineno for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next(found, 0)
