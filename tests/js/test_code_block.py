"""Syntax colours of code blocks on the relay's pages: every character stays, and the parts have the right kind."""

from __future__ import annotations

import json

import pytest

from tests.support.nodejs import node
from tests.support.paths import ROOT

MODULE = ROOT / "relay" / "tabrelay" / "assets" / "page" / "code_block.js"
SAMPLES = {
    "shell": 'claude mcp add --transport http x "a \\"b\\" $(c)" $HOME # note\ncurl -d \'{"a": 1}\' \\\n  -H "open',
    "python": '@tool\nasync def add(a: int = 0x1F) -> str:\n    """Doc\n    """\n    return f"x{a}" + \'open # no',
    "js": "const x = await f(`a${b}`, 1.5e3, 'it\\'s'); // end\n/* open",
    "json": '{"a": [1, -2.5, true, null, "b\\"c"], "open',
    "text": "any <b>text</b>",
}
EXPECTED = [
    ("shell", "name", "--transport"),
    ("shell", "name", "$HOME"),
    ("shell", "comment", "# note"),
    ("shell", "keyword", "curl"),
    ("python", "keyword", "async"),
    ("python", "name", "add"),
    ("python", "number", "0x1F"),
    ("python", "string", '"""Doc\n    """'),
    ("js", "keyword", "await"),
    ("js", "number", "1.5e3"),
    ("js", "string", "`a${b}`"),
    ("js", "comment", "/* open"),
    ("json", "name", '"a"'),
    ("json", "keyword", "null"),
    ("json", "string", '"b\\"c"'),
]


@pytest.fixture(scope="module")
async def tokens() -> dict[str, list[tuple[str, str]]]:
    script = (
        f'const m = await import("{MODULE.as_uri()}"); const samples = {json.dumps(SAMPLES)};'
        "const all = Object.entries(samples).map(([name, text]) => [name, m.tokenize(text, name)]);"
        "console.log(JSON.stringify(Object.fromEntries(all)));"
    )
    ended = await node("--input-type=module", "--eval", script)
    assert ended.code == 0, ended.err
    return {name: [(kind, text) for kind, text in found] for name, found in json.loads(ended.out).items()}


async def test_the_parts_together_are_the_text(tokens: dict[str, list[tuple[str, str]]]) -> None:
    assert {name: "".join(text for _, text in found) for name, found in tokens.items()} == SAMPLES


async def test_parts_have_the_kind_of_their_syntax(tokens: dict[str, list[tuple[str, str]]]) -> None:
    assert [entry for entry in EXPECTED if entry[1:] not in tokens[entry[0]]] == []
