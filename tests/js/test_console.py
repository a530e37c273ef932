"""Pure modules of the console: filter language, difference, lint, copied programs and session files."""

from __future__ import annotations

import ast
import json
import shlex
from typing import Any

import pytest

from tests.support.nodejs import node
from tests.support.paths import ROOT

FOLDER = ROOT / "relay" / "tabrelay" / "assets" / "page" / "console"
ROW: dict[str, Any] = {
    "id": "a-1",
    "seq": 1,
    "group": "a-1",
    "server": "notes",
    "method": "tools/call",
    "name": "add",
    "kind": "call",
    "client": {"name": "VS Code", "version": "1"},
    "era": "2026-07-28",
    "principal": "admin",
    "by": "client",
    "peer": "browser",
    "tab": "3f9a",
    "tab_title": "Shopping list",
    "started": 1000.0,
    "ms": 700.0,
    "state": "failed",
    "code": -32602,
    "error": {"reason": "tool_error", "message": "no such item"},
    "bytes_in": 100,
    "bytes_out": 200,
    "tokens_in": 25,
    "tokens_out": 50,
    "trace": None,
    "relay": "here",
}
CALL = {
    "server": "my notes",
    "url": "http://127.0.0.1:4747/notes",
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": True, "b": None, "text": 'it\'s "x"'}, "_meta": {"x": 1}},
    "tokenCommand": "tabrelay token --home '/my home'",
    "expected": {"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}},
}


async def run(script: str, *given: Any) -> Any:
    """The value that the script, the body of an async function of `given`, returns."""
    lines = [
        f"const load = (name) => import({json.dumps(FOLDER.as_uri())} + '/' + name);",
        f"const given = {json.dumps(given)};",
        f"console.log(JSON.stringify(await (async () => {{ {script} }})()));",
    ]
    ended = await node("--input-type=module", "--eval", "\n".join(lines))
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


KEPT = [
    *("", "add", "tool:add", "tool:ADD", "server:notes", "client:vs", 'client:"vs code"', "tab:shopping", "tab:3f9a"),
    *(
        "status:failed",
        "status:error",
        "status:tool_error",
        "status:done,failed",
        "method:tools/",
        "ms:>500",
        "ms:600-800",
    ),
    *(
        "era:2026",
        "by:client",
        "peer:browser",
        "code:-32602",
        "error:item",
        "tokens:>70",
        "bytes:300",
        "-tool:sub",
        "shopping",
    ),
    # A term that is not complete, as while a person types, keeps all.
    *("tool:", "-tool:", "-status:", "ms:", "-ms:fast", "-tool:,", '-""'),
    *("tool:add,sub ms:<1000", '"no such"', "relay:here", "token:admin", "-ms:>800", "tool:add$"),
]
DROPPED = [
    *(
        "sub",
        "tool:sub",
        "-tool:add",
        "client:cursor",
        "status:done",
        "status:open",
        "ms:<500",
        "ms:>700",
        "ms:100-200",
    ),
    *('client:""', "constructor:add", "__proto__:x", "tostring:x"),
    *("era:2025", "by:console", "tool:add server:other", "tokens:>76", '"item such"', "tool:ad$"),
]


async def test_the_filter_keeps_and_drops_rows() -> None:
    script = """const { parseFilter } = await load('filter.js');
    return given[1].map((text) => parseFilter(text).matches(given[0], 5000));"""
    found = await run(script, ROW, KEPT + DROPPED)
    assert dict(zip(KEPT + DROPPED, found, strict=True)) == dict.fromkeys(KEPT, True) | dict.fromkeys(DROPPED, False)


async def test_the_filter_names_problems_and_replaces_terms() -> None:
    script = """const { parseFilter, withTerm } = await load('filter.js');
    return [parseFilter("colour:red").problems, parseFilter("ms:fast").problems, parseFilter("http://a").problems,
      withTerm("a tool:x b", "tool", "two words"), withTerm("tool:x", "tool", null)];"""
    keys, number, address, replaced, removed = await run(script)
    assert keys == ["There is no key “colour”."] and "ms:>500" in number[0] and address == []
    assert replaced == 'a b tool:"two words"' and removed == ""


TEXTS = [
    ("a\nb\nc", "a\nx\nc"),
    ("", "a"),
    ("a\nb", ""),
    ("same", "same"),
    ("1\n2\n3\n4\n5", "0\n1\n3\n4\n6\n5\n7"),
    ("a\na\na", "a\na"),
]


async def test_a_difference_rebuilds_both_texts() -> None:
    script = "const { diffLines } = await load('diff.js'); return given[0].map(([a, b]) => diffLines(a, b));"
    for (before, after), lines in zip(TEXTS, await run(script, TEXTS), strict=True):
        assert "\n".join(line["text"] for line in lines if line["kind"] != "added") == before
        assert "\n".join(line["text"] for line in lines if line["kind"] != "removed") == after
    [lines] = await run(script, [["1\n2\n3", "1\n3"]])
    assert [line["kind"] for line in lines] == ["same", "removed", "same"]


async def test_lists_of_tools_are_compared_by_name() -> None:
    script = """const { diffTools } = await load('diff.js');
    return diffTools(given[0], given[1]).map(({ name, kind }) => [name, kind]);"""
    before = [{"name": "a", "x": 1, "y": 2}, {"name": "b"}, {"name": "c", "description": "old"}]
    after = [{"name": "a", "y": 2, "x": 1}, {"name": "c", "description": "new"}, {"name": "d"}]
    assert await run(script, before, after) == [["b", "removed"], ["c", "changed"], ["d", "added"]]


LINTED = [
    {"name": "no description", "inputSchema": {"type": "object"}},
    {"name": "get_note", "description": "Return the note with this title", "inputSchema": {"type": "object"}},
    {"name": "read_note", "description": "Return the note with this title.", "inputSchema": {"type": "object"}},
    {
        "name": "untyped",
        "description": "Do something with a value and a list",
        "inputSchema": {
            "type": "object",
            "required": ["missing"],
            "properties": {
                "value": {"description": "any"},
                "list": {"type": "array", "description": "of what?"},
                "good": {"type": "string"},
            },
        },
    },
    {
        "name": "top",
        "description": "A tool with alternatives at the top",
        "inputSchema": {"type": "object", "anyOf": []},
    },
]


async def test_the_lint_finds_what_models_and_clients_stumble_over() -> None:
    found = await run("const { lintTools } = await load('tool_lint.js'); return lintTools(given[0]);", LINTED)
    assert {(one["tool"], one["rule"]) for one in found} == {
        *(("no description", "name"), ("no description", "description"), ("read_note", "alike")),
        *(("untyped", "schema"), ("untyped", "argument"), ("top", "schema")),
    }
    texts = " ".join(one["text"] for one in found if one["tool"] == "untyped")
    for part in (
        "“missing” is required",
        "“value” has no type",
        "“list” is a list without",
        "“good” has no description",
    ):
        assert part in texts


async def copied(**more: Any) -> dict[str, str]:
    script = """const { FORMS } = await load('copy_as.js');
    return Object.fromEntries(FORMS.map(({ id, make }) => [id, make(given[0])]));"""
    found: dict[str, str] = await run(script, CALL | more)
    return found


async def test_copied_commands_are_read_by_a_shell_and_programs_by_python() -> None:
    forms = await copied()
    words = shlex.split(forms["tabrelay"])
    assert words[:2] == ["tabrelay", "call"] and words[-4:-1] == ["my notes", "add", "--args"] and "/my home" in words
    assert json.loads(words[-1]) == CALL["params"]["arguments"]  # type: ignore[index]
    sent = shlex.split(forms["curl"])
    body = json.loads(sent[sent.index("-d") + 1])
    assert body["params"]["arguments"] == CALL["params"]["arguments"]  # type: ignore[index]
    assert "Mcp-Name: add" in sent
    for form in ("python", "pytest"):
        tree = ast.parse(forms[form])
        values = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "call_tool"
        ]
        assert ast.literal_eval(values[0].args[1]) == CALL["params"]["arguments"]  # type: ignore[index]
    assert 'assert result.structured_content == {"result": 5}' in forms["pytest"]


ARGUMENT = {"name": "code", "value": "x"}


@pytest.mark.parametrize(
    ("method", "params", "python", "typescript"),
    [
        ("resources/read", {"uri": "notes://milk"}, 'client.read_resource("notes://milk")', "client.readResource("),
        ("prompts/get", {"name": "a"}, 'client.get_prompt("a", {})', "client.getPrompt("),
        ("prompts/list", {"cursor": "2"}, 'client.list_prompts(cursor="2")', "client.listPrompts("),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "review"}, "argument": ARGUMENT},
            'client.complete(types.PromptReference(name="review"), {"name": "code", "value": "x"})',
            "client.complete(",
        ),
        ("server/discover", {}, "# The client has no function for server/discover.", "// The client has no function"),
    ],
)
async def test_a_copied_program_makes_the_same_request(
    method: str, params: dict[str, Any], python: str, typescript: str
) -> None:
    forms = await copied(method=method, params=params)
    for form in ("python", "pytest"):
        ast.parse(forms[form])
        assert python in forms[form] and ("import mcp_types as types" in forms[form]) == ("types." in python)
    assert typescript in forms["typescript"]
    sent = shlex.split(forms["curl"])
    body = json.loads(sent[sent.index("-d") + 1])
    assert body["method"] == method and body["params"].items() >= params.items()


async def test_a_copied_test_expects_the_error_or_the_result_without_hidden_values() -> None:
    failed = (await copied(expected=None, code=-32602))["pytest"]
    assert "with pytest.raises(MCPError) as failed:" in failed and "failed.value.code == -32602" in failed
    hidden = {"content": [{"type": "text", "text": "[redacted]"}], "structuredContent": {"token": "[redacted]"}}
    assert "redacted" not in (await copied(expected=hidden))["pytest"]


async def test_a_session_file_keeps_only_what_the_console_can_show() -> None:
    odd = {
        "row": {
            "id": "a",
            "server": "b",
            "method": "c",
            "started": 1,
            "state": "done",
            "era": 5,
            "ms": "x",
            "error": "x",
        },
        "request": {"headers": []},
        "spans": [{"name": "run", "hop": "tab", "at": 1, "ms": 2}, {"ms": "x"}, None, 7],
        "events": "x",
        "notices": [1, {"at": 1}],
        "clock": {"offset_ms": "x"},
    }
    script = "const { readSession } = await load('exports.js'); return readSession(JSON.stringify(given[0])).calls[0];"
    call = await run(script, {"format": "tabrelay-session", "format_version": 1, "calls": [odd]})
    row = call["row"]
    assert row["era"] is row["ms"] is row["error"] is None and row["group"] == "a" and row["client"]["name"] is None
    assert [len(call[name]) for name in ("spans", "events", "notices")] == [1, 0, 1] and call["clock"] is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ('{"format": "other"}', "no session file"),
        ('{"format": "tabrelay-session", "format_version": 9, "calls": []}', "later version"),
        ('{"format": "tabrelay-session", "format_version": 1, "calls": [{"row": {}}]}', "Call 1"),
    ],
)
async def test_a_wrong_session_file_is_refused(text: str, problem: str) -> None:
    script = """const { readSession } = await load('exports.js');
    try { readSession(given[0]); } catch (error) { return error.message; }"""
    assert problem in await run(script, text)


async def test_templates_are_expanded() -> None:
    script = "const { expanded } = await load('trials.js'); return given[0].map((text) => expanded(text, given[1]));"
    templates = ["notes://{title}", "file:///{+path}", "notes://list{?tag,page}", "notes://{missing}"]
    values = {"title": "a b/c", "path": "x/y", "tag": "ü", "page": 2}
    assert await run(script, templates, values) == [
        "notes://a%20b%2Fc",
        "file:///x/y",
        "notes://list?tag=%C3%BC&page=2",
        "notes://",
    ]


async def test_rounds_of_a_call_follow_their_first_round() -> None:
    script = """const { linesOf } = await load('call_lines.js');
    return linesOf(given[0]).map(({ row, round, rounds }) => [row.id, round, rounds]);"""
    rows = [
        ROW | {"id": "a", "group": "a"},
        ROW | {"id": "b", "group": "b"},
        ROW | {"id": "c", "group": "a"},
    ]
    assert await run(script, rows) == [["b", 0, 1], ["a", 0, 2], ["c", 1, 0]]
