"""The check of names and prose finds what CONTRIBUTING.md replaces, in each kind of text that it reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SPEC = importlib.util.spec_from_file_location("style", ROOT / ".ci" / "style.py")
assert SPEC is not None and SPEC.loader is not None
style = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(style)

LONG = "A sentence of " + "many " * 40 + "words.\n"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("a.py", "# Somebody calls.\n", ["Somebody"]),
        ("a.py", '"""Nobody calls."""\n', ["Nobody"]),
        ("a.py", 'x = f"whoever {1} calls"\n', ["whoever"]),
        ("a.py", "knock = 1\n", ["knock"]),
        ("a.py", "def test_nobody_calls() -> None: ...\n", ["nobody"]),
        ("a.py", "def test_it_is_told() -> None: ...\n", ["is told"]),
        ("a.py", "# Somebody calls. style: ok\n", []),
        ("a.py", "# A client calls.\ndef test_a_client_calls() -> None: ...\n", []),
        ("a.js", "// Somebody calls.\n", ["Somebody"]),
        ("a.js", "const knockKnock = 1;\n", ["knockKnock", "knockKnock"]),
        ("a.md", "It stands in `somebody`.\n", ["stands"]),
        ("a.md", "```\nsomebody\n```\n", []),
        ("a.md", LONG, [f"{LONG[:60]}…"]),
        ("a.md", LONG.replace("many ", "many. "), []),
    ],
)
def test_words_and_sentences_are_found(tmp_path: Path, file: str, text: str, found: list[str]) -> None:
    path = tmp_path / file
    path.write_text(text)
    assert [finding[2] for finding in style._findings(path)] == found
