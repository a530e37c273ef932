"""Codes of errors: each code of the program has an entry in docs/reference/errors.md, and the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tabrelay import errors
from tabrelay.cli import error_entries, output
from tabrelay.cli.main import main
from tabserver.wire import jsonrpc
from tabserver.wire.help_codes import BY_CODE, BY_REASON, with_help
from tests.support.paths import JS, ROOT

PAGE = ROOT / "docs" / "reference" / "errors.md"
RELAY = ROOT / "relay" / "tabrelay"
BROWSER = ROOT / "browser_pkg" / "tabserver"
CODE = re.compile(r"\bTR\d{3}\b")
# Functions that make an error, and the place of its reason among their arguments.
MAKERS = {"Refuse": 1, "RoutingError": 1, "_not_run": 1, "error_result": 1, "problem": 0, "problem_response": 1}
MAKERS |= {"_error": 1, "_refusal": 1}
# Where the two short names make such errors.
SHORT = {"_error": ("pairing.py", "proving.py"), "_refusal": ("console.py",)}


def entries() -> dict[str, str]:
    return error_entries.entries(PAGE.read_text(encoding="utf-8"))


def sources() -> list[Path]:
    python = [path for folder in (RELAY, BROWSER) for path in folder.rglob("*.py") if "__pycache__" not in path.parts]
    return sorted(python) + sorted(JS.rglob("*.js")) + sorted((ROOT / "web_demo").rglob("*.js"))


@cache
def used() -> frozenset[str]:
    """Codes in the code. The docstrings and the help of `tabrelay help` name codes that are used too."""
    return frozenset(code for path in sources() for code in CODE.findall(path.read_text(encoding="utf-8")))


def reasons(tree: ast.Module, name: str) -> Iterator[str]:
    """Reasons of errors that a module makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            place = MAKERS.get(called) if called not in SHORT or name in SHORT[called] else None
            if place is not None and len(node.args) > place:
                yield from _text(node.args[place])
            if called == "BadRequest":
                yield from (text for each in node.keywords if each.arg == "reason" for text in _text(each.value))
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if "reason" in keys and "delivered" in keys:
                yield from _text(node.values[keys.index("reason")])
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign | ast.Assign):
                    target = each.target if isinstance(each, ast.AnnAssign) else each.targets[0]
                    if isinstance(target, ast.Name) and target.id == "reason" and each.value is not None:
                        yield from _text(each.value)


def _text(node: ast.expr) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_each_code_of_the_program_has_an_entry_and_each_entry_is_used() -> None:
    assert len(used()) > 100
    assert used() == set(entries())


def test_every_entry_has_a_title_and_a_remedy() -> None:
    texts = entries()
    assert list(texts) == sorted(texts)
    bad = [code for code, text in texts.items() if not re.match(r"\*\*.+[.}]\*\*", text) or "\nRemedy: " not in text]
    assert bad == []


def test_every_reason_of_an_error_has_a_code_and_its_entry_names_it() -> None:
    found = {
        reason
        for path in sources()
        if path.suffix == ".py"
        for reason in reasons(ast.parse(path.read_text(encoding="utf-8")), path.name)
    }
    assert len(found) > 50
    assert found - set(BY_REASON) == set()
    texts = entries()
    unnamed = {reason: code for reason, code in BY_REASON.items() if f"`{reason}`" not in texts[code].split("\n")[0]}
    assert unnamed == {"bad_report": "TR141", "pairing_refused": "TR232"}


def test_every_json_rpc_code_is_in_its_entry() -> None:
    texts = entries()
    assert {code: help for code, help in BY_CODE.items() if str(code) not in texts[help]} == {}
    own = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RelayError)]
    named = [kind for kind in own if kind not in (errors.RelayError, errors.BadRequest)]
    assert len(named) > 8
    assert [kind for kind in named if str(kind.code) not in texts[BY_REASON[kind.reason]]] == []


def test_every_error_of_a_command_has_a_code() -> None:
    """An exit code that several errors share does not say which help applies."""
    bare = [
        f"{path.name}:{node.lineno}"
        for path in sorted((RELAY / "cli").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "ExitWith"
        and any(isinstance(each, ast.Name) and each.id == "FAILED" for each in node.args)
        and all(each.arg != "help" for each in node.keywords)
    ]
    assert bare == []
    assert set(output.HELP) == {output.USAGE, output.UNREACHABLE, output.REFUSED}


def test_what_functions_of_a_page_throw_has_a_code() -> None:
    """An app may not catch it: then only the console shows it."""
    api = [JS / "client" / f"{name}.js" for name in ("offers", "apps", "skills", "tool_meta", "approvals")]
    api += [JS / "pyscript.js", *sorted((ROOT / "web_demo" / "playground").glob("*.js"))]
    thrown = {
        f"{path.name}: {text}"
        for path in api
        for text in re.findall(r"new (?:Type|Range)?Error\((?!reason\)|String\().*", path.read_text(encoding="utf-8"))
    }
    # A handler throws these: the caller gets the text, and the console shows it with TR474.
    of_handlers = ("does not follow", "answered ${answer.status}", "no app_view.js", "does not offer")
    assert len(thrown) > 15
    assert [text for text in thrown if not CODE.search(text) and not any(one in text for one in of_handlers)] == []


@pytest.mark.parametrize(
    ("code", "data", "help"),
    [
        (-31011, {"reason": "browser_gone", "delivered": "unknown"}, "TR102"),
        (jsonrpc.INVALID_PARAMS, None, "TR143"),
        (jsonrpc.INVALID_PARAMS, {"uri": "a:b"}, "TR143"),
        (jsonrpc.INVALID_PARAMS, {"help": "TR999"}, "TR999"),
    ],
)
def test_an_error_message_gets_the_code_and_keeps_its_data(code: int, data: dict[str, str] | None, help: str) -> None:
    error = jsonrpc.error_message(1, code, "It failed.", data)["error"]
    assert error["data"] == {**(data or {}), "help": help}


def test_data_of_other_kinds_stays_unchanged() -> None:
    assert [with_help(-32602, "text"), with_help(-32602, [1]), with_help(7, None), with_help(7, {"a": 1})] == [
        "text",
        [1],
        None,
        {"a": 1},
    ]


def test_help_of_a_code_prints_its_entry_without_marks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "tr302"]) == output.OK
    printed = capsys.readouterr().out
    assert printed.startswith("TR302: No relay answers.\n")
    assert "Remedy: start one with `tabrelay serve`." in printed and "**" not in printed


def test_help_of_an_unknown_code_prints_the_range_of_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "TR999"]) == output.USAGE
    first, last = capsys.readouterr().err.splitlines()
    assert first == "TR999 is not the code of an error. There are TR101 to TR513."
    assert last.endswith(" help TR301")
