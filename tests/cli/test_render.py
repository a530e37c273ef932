"""Results and lists of tools as text, Markdown and JSON; the bar; questions at the terminal."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tabrelay.cli import elicitation, render
from tabrelay.cli.progress import ProgressBar, line

PNG = base64.b64encode(b"\x89PNG picture").decode()
RESULT: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "Hello"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a:1", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "a:2", "blob": PNG, "mimeType": "application/pdf"}},
        {"type": "resource_link", "uri": "https://x/y", "name": "y"},
        {"type": "hologram"},
        {"type": "image", "data": "not base64!", "mimeType": "image/png"},
    ]
}


def show(value: dict[str, Any], format: str, folder: Path, name: str = "shot") -> str:
    return render.result(value, format, render.OutputFolder(folder, name))


def test_a_result_as_text_has_its_pictures_in_files(tmp_path: Path) -> None:
    (tmp_path / "shot-1.png").write_text("another file's")
    assert show(RESULT, "text", tmp_path).splitlines() == [
        "Hello",
        f"[image, image/png: {tmp_path}/shot-2.png]",
        f"[audio, audio/wav: {tmp_path}/shot-3.wav]",
        "inside",
        f"[resource, application/pdf: {tmp_path}/shot-4.pdf]",
        "y https://x/y",
        "(hologram: this version can't show it; -f json does)",
        "(image of type image/png, damaged)",
    ]
    assert (tmp_path / "shot-2.png").read_bytes() == b"\x89PNG picture"
    assert (tmp_path / "shot-1.png").read_text() == "another file's"


def test_a_result_as_markdown_shows_its_pictures(tmp_path: Path) -> None:
    text = show(RESULT, "markdown", tmp_path)
    assert "Hello\n\n![image](shot-1.png)\n\n[audio](shot-2.wav)\n\ninside" in text
    assert (tmp_path / "shot-1.png").exists()
    assert "[y](https://x/y)" in text


def test_a_result_as_json_is_the_result(tmp_path: Path) -> None:
    assert json.loads(show(RESULT, "json", tmp_path)) == RESULT
    assert list(tmp_path.iterdir()) == []


def test_structure_is_shown_when_there_is_no_text(tmp_path: Path) -> None:
    value: dict[str, Any] = {"content": [], "structuredContent": {"sum": 5, "ä": 1}}
    assert json.loads(show(value, "text", tmp_path)) == {"sum": 5, "ä": 1}
    assert show(value, "markdown", tmp_path).startswith("```json\n{")
    assert show({**value, "content": [{"type": "text", "text": "5"}]}, "text", tmp_path) == "5"


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", "\x1b[2J"])
def test_a_tools_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    show(RESULT, "text", inner, name)
    assert len(list(inner.iterdir())) == 3
    assert list(tmp_path.iterdir()) == [inner]


def test_no_escape_sequence_of_a_server_reaches_a_terminal() -> None:
    assert render.printable("a\x1b[2Jb\rc\u202ed\te\nf\x9bg\r\n") == "a\\x1b[2Jb\\x0dc\\x202ed\te\nf\\x9bg\n"


TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": "Add two numbers.\nReally.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "the first"},
                "how": {"enum": ["fast", "slow"], "default": "fast"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "x": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "y": True,
            },
            "required": ["a"],
        },
    },
    {"name": "bare", "title": "Bare"},
]


def test_tools_as_text() -> None:
    assert render.tools(TOOLS, "text") == (
        "add\n    Add two numbers.\n    Really.\n      a: number  the first\n"
        '      how: "fast" | "slow" (optional)  (default "fast")\n'
        "      tags: string[] (optional)\n      x: string | null (optional)\n      y: any (optional)\n\nbare\n    Bare"
    )
    assert render.tools([], "text") == "The server has no tools."


def test_tools_as_markdown_and_json() -> None:
    text = render.tools(TOOLS, "markdown")
    assert "### add\n" in text and "| `a` | number | required | the first |" in text
    assert '| `how` | "fast" \\| "slow" |' in text
    assert json.loads(render.tools(TOOLS, "json")) == TOOLS


# -- the bar -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"progress": 1, "total": 4, "message": "reading\n  files"}, "[██████··················]  25%  reading files"),
        ({"progress": 9, "total": 4}, "[████████████████████████] 100%"),
        ({"progress": -1, "total": 4}, "[························]   0%"),
        ({"progress": 7}, "7 …"),
        ({"progress": 0.5, "total": 0, "message": "\x1b[2J"}, "0.5 …  \\x1b[2J"),
        ({"progress": "x"}, "…"),
    ],
)
def test_a_notice_is_one_line(params: dict[str, Any], shown: str) -> None:
    assert line(params, 80) == shown
    assert len(line({**params, "message": "long " * 50}, 60)) < 60


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_drawn_on_a_terminal_only_and_taken_away() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        bar = ProgressBar(stream)
        bar.step({"progress": 1, "total": 2})
        bar.end()
        bar.end()
    assert terminal.getvalue().startswith("\r\x1b[2K[████") and terminal.getvalue().endswith("50%\r\x1b[2K")
    assert pipe.getvalue() == ""


# -- questions ---------------------------------------------------------------------------------------------------------


class Typist:
    """Types these lines, one per prompt."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


FORM = {
    "message": "Who \x1b[2J are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name"},
            "age": {"type": "integer"},
            "ok": {"type": "boolean", "default": True},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "note": {"type": "string"},
        },
        "required": ["name", "age", "kind"],
    },
}


def test_a_form_is_asked_field_by_field_until_each_answer_is_one() -> None:
    typist = Typist("", "", "Ada", "old", "36", "", "c", "b", "")
    assert elicitation.answer(FORM, typist) == {
        "action": "accept",
        "content": {"name": "Ada", "age": 36, "ok": True, "kind": "b"},
    }
    assert "\x1b" not in "".join(typist.prompts)
    assert typist.prompts[1] == "  Your name: " and "(a | b)" in typist.prompts[6]


def test_a_user_may_refuse_or_leave() -> None:
    assert elicitation.answer(FORM, Typist("n")) == {"action": "decline"}
    assert elicitation.answer(FORM, Typist("y", "Ada")) == {"action": "cancel"}
    link = {"mode": "url", "message": "Sign in", "url": "https://x/"}
    typist = Typist("")
    assert elicitation.answer(link, typist) == {"action": "accept"}
    assert "https://x/" in typist.prompts[0]
    assert elicitation.answer(link, Typist("n")) == {"action": "decline"}
