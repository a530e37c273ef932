"""Frontmatter of a SKILL.md: the YAML between its first two lines `---`, as a JSON object.

It reads what skills contain: scalars, quoted and block texts, lists, and one level of keys, as YAML 1.2 does. A line in
another form is an error that names it, because clients compare the object with the file.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final

_KEY: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-/ ]*?)[ \t]*:(?:[ \t]+(.*))?")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BLOCK: Final = re.compile(r"([|>])([-+]?)")
_SPECIAL: Final = ("&", "*", "!", "%", "@", "`", "? ", "- ")


class FrontmatterError(ValueError):
    """A line that is not understood."""


def split_frontmatter(text: str) -> tuple[str | None, str]:
    """The lines between the first two `---`, and the rest. None: the text has no frontmatter."""
    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return (found[1], text[found.end() :]) if found else (None, text)


def parse_frontmatter(text: str) -> dict[str, Any]:
    """Raises FrontmatterError."""
    return _map(_Lines([line.rstrip("\r") for line in text.split("\n")]), 0)


def write_frontmatter(values: dict[str, Any]) -> str:
    """Frontmatter that any YAML parser reads as these values: JSON is YAML."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    return f"---\n{''.join(lines)}---\n"


class _Lines:
    """The lines that have not been read."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._at = lines, 0

    def peek(self) -> str | None:
        """The next line with content."""
        while self._at < len(self._lines) and not self._lines[self._at].split("#")[0].strip():
            if self._lines[self._at].strip() and not self._lines[self._at].lstrip().startswith("#"):
                break
            self._at += 1
        return self._lines[self._at] if self._at < len(self._lines) else None

    def take(self) -> str:
        self._at += 1
        return self._lines[self._at - 1]

    def take_block(self) -> list[str]:
        """The lines of a block text: those that are indented, and empty ones."""
        first = self._at
        while self._at < len(self._lines) and (not self._lines[self._at].strip() or self._lines[self._at][0] == " "):
            self._at += 1
        return self._lines[first : self._at]

    def fail(self) -> FrontmatterError:
        line = self._lines[min(self._at, len(self._lines)) - 1].strip()
        return FrontmatterError(
            f"line {self._at + 1} of the SKILL.md is not understood: {line[:80]}. Write `key: value`, quote texts with "
            "special characters, and nest keys one level deep."
        )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _map(lines: _Lines, indent: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while (line := lines.peek()) is not None and _indent(line) >= indent:
        lines.take()
        match = _KEY.fullmatch(line.strip())
        if match is None or _indent(line) != indent or "\t" in line[: indent + 1] or match[1] in found:
            raise lines.fail()
        found[match[1]] = _value((match[2] or "").strip(), lines, indent)
    return found


def _value(text: str, lines: _Lines, indent: int) -> Any:
    if block := _BLOCK.fullmatch(_uncommented(text)):
        if indent:
            raise lines.fail()
        return _block_text(lines.take_block(), block[1] == ">", block[2])
    following = lines.peek()
    is_deeper = following is not None and _indent(following) > indent
    is_list = following is not None and following.strip().startswith("- ") and _indent(following) >= indent
    if _uncommented(text):
        if is_deeper:
            text = _continued(text, lines, indent)
        return _scalar(text, lines)
    if is_list:
        return _list(lines, _indent(following or ""))
    if is_deeper:
        if indent:
            raise lines.fail()
        return _map(lines, _indent(following or ""))
    return None


def _continued(text: str, lines: _Lines, indent: int) -> str:
    """A plain text that goes on in the next lines."""
    if text[0] in "\"'[{":
        raise lines.fail()
    parts = [_uncommented(text)]
    while (line := lines.peek()) is not None and _indent(line) > indent:
        if _KEY.fullmatch(line.strip()) or line.strip().startswith("- "):
            lines.take()
            raise lines.fail()
        parts.append(_uncommented(lines.take().strip()))
    return " ".join(parts)


def _list(lines: _Lines, indent: int) -> list[Any]:
    found = []
    while (line := lines.peek()) is not None and _indent(line) == indent and line.strip().startswith("- "):
        item = lines.take().strip()[2:].strip()
        if _KEY.fullmatch(item) and item[0] not in "\"'":
            raise lines.fail()
        found.append(_scalar(item, lines))
    return found


def _scalar(text: str, lines: _Lines) -> Any:
    try:
        if text[:1] in ('"', "'"):
            return _quoted(text)
        plain = _uncommented(text)
        if plain[:1] in ("[", "{"):
            return _flow(plain)
    except ValueError:
        raise lines.fail() from None
    if plain.startswith(_SPECIAL) or ": " in plain or plain.endswith(":"):
        raise lines.fail()
    return _plain(plain)


def _number(value: float) -> int | float:
    """JSON has one kind of number: 1.0 is 1."""
    return int(value) if value.is_integer() else value


def _quoted(text: str) -> str:
    end = re.fullmatch(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')[ \t]*(?:#.*)?", text)
    if end is None:
        raise ValueError(text)
    inner = end[1]
    return str(json.loads(inner)) if inner[0] == '"' else inner[1:-1].replace("''", "'")


def _flow(text: str) -> Any:
    """A list or an object in one line: JSON, or a list of plain words."""
    try:
        return json.loads(text)
    except ValueError:
        items = re.fullmatch(r"\[([^\[\]{}\"':#]*)\]", text)
        if items is None:
            raise
        found = [item.strip() for item in items[1].split(",")]
        return [_plain(item) for item in (found[:-1] if not found[-1] else found)]


def _plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return _number(float(text)) if _FLOAT.fullmatch(text) else text


def _uncommented(text: str) -> str:
    return re.sub(r"(^|[ \t]+)#.*", "", text).strip() if text[:1] not in ('"', "'") else text


def _block_text(lines: list[str], is_folded: bool, ending: str) -> str:
    depth = min((_indent(line) for line in lines if line.strip()), default=0)
    texts = [line[depth:].rstrip("\r") if line.strip() else "" for line in lines]
    trailing = len(texts) - len(_trimmed(texts))
    texts = _trimmed(texts)
    text = _folded(texts) if is_folded else "\n".join(texts)
    if not texts:
        return "\n" * trailing if ending == "+" else ""
    return text if ending == "-" else text + "\n" + ("\n" * trailing if ending == "+" else "")


def _trimmed(texts: list[str]) -> list[str]:
    end = len(texts)
    while end and not texts[end - 1]:
        end -= 1
    return texts[:end]


def _folded(texts: list[str]) -> str:
    """Line breaks become spaces, except around empty and further indented lines."""
    made = texts[0] if texts else ""
    for before, line in itertools.pairwise(texts):
        if not line:
            made += "\n"
        elif not before:
            made += line if not line.startswith(" ") else "\n" + line
        elif line.startswith(" ") or before.startswith(" "):
            made += "\n" + line
        else:
            made += " " + line
    return made
