"""In-place edits of JSON with comments and trailing commas (JSONC): one member is set or removed.

Everything else, including comments and indentation, stays unchanged. Positions are those of the text with blanks in
place of comments and trailing commas. Pure; `file` compares the result with the intent.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tabrelay.config import document
from tabrelay.payloads.json_spans import JsonMember, end_of, members, skip

_REST: Final = re.compile(r"[ \t]*(?://[^\n]*)?\n?")
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)


class JsoncError(ValueError):
    """Not JSON, or not the expected structure; the text gives the position."""


def parse(text: str) -> Any:
    """Raises JsoncError."""
    try:
        return document.parse_jsonc(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise JsoncError(f"Line {error.lineno}, column {error.colno}: {error.msg}.") from None
    except RecursionError:
        raise JsoncError("It nests too deeply.") from None
    except ValueError as error:
        raise JsoncError(f"It {error}.") from None


def put(text: str, path: tuple[str, ...], value: Any) -> str:
    """Sets the member at `path` and creates missing objects. Raises JsoncError."""
    if not text.strip():
        text = "{}\n"
    parse(text)
    whole, end = JsoncObject(text, 0), len(text)
    for depth, name in enumerate(path):
        if not whole.is_object:
            raise JsoncError(f"{'.'.join(path[:depth]) or 'The whole'} is not an object.")
        found = whole.members().get(name)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return whole.insert(name, value)
        whole, end = JsoncObject(text, found.start), found.end
    return text[: whole.start] + _written(value, _indent_at(text, whole.start), text) + text[end:]


def remove(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at `path`; unchanged if there is none. Raises JsoncError."""
    parse(text)
    whole = JsoncObject(text, 0)
    for name in path[:-1]:
        found = whole.members().get(name)
        if found is None:
            return text
        whole = JsoncObject(text, found.start)
    return whole.remove(path[-1])


class JsoncObject:
    """One object in the text: its braces, and its members in their order. `at`: a position before it."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._with_commas = document.without_comments(text)
        self._plain = document.without_trailing_commas(self._with_commas)
        self.start = skip(self._plain, at)
        self.is_object = self._plain[self.start] == "{"

    def members(self) -> dict[str, JsonMember]:
        return members(self._plain, self.start) if self.is_object else {}

    def insert(self, name: str, value: Any) -> str:
        text, start, end = self._text, self.start, end_of(self._plain, self.start) - 1
        outer = _indent_at(text, start)
        there = list(self.members().values())
        inner = _indent_at(text, there[-1].name) if there else outer + _unit(text)
        member = f"{json.dumps(name, ensure_ascii=False)}: {_written(value, inner, text)}"
        # After a comment on the last member, but before the end of the object.
        kept_end = start + len(text[start:end].rstrip())
        if not there:
            return f"{text[:kept_end]}\n{inner}{member}\n{outer}{text[end:]}"
        last = there[-1].end
        comma, trailing = (",", "") if self._comma_after(last) is None else ("", ",")
        return f"{text[:last]}{comma}{text[last:kept_end]}\n{inner}{member}{trailing}{text[kept_end:]}"

    def remove(self, name: str) -> str:
        text, there = self._text, self.members()
        if name not in there:
            return text
        names, here = list(there), there[name]
        comma, at = self._comma_after(here.end), names.index(name)
        start, end = here.name, here.end if comma is None else comma + 1
        if at + 1 < len(names):
            return _without_line(text, start, end)
        if at:
            # The previous member becomes the last. A comment between the two belongs to it, and stays.
            before = self._comma_after(there[names[at - 1]].end)
            assert before is not None
            kept = "" if comma is None else ","
            return text[:before] + kept + text[before + 1 : start].rstrip() + text[end:]
        closing = end_of(self._plain, self.start) - 1
        if not text[self.start + 1 : start].strip() and not text[end:closing].strip():
            start, end = self.start + 1, closing
        return text[:start] + text[end:]

    def _comma_after(self, at: int) -> int | None:
        at = skip(self._with_commas, at)
        return at if self._with_commas[at] == "," else None


def _without_line(text: str, start: int, end: int) -> str:
    """The text without this part, and without the rest of its line if that is only a comment on it."""
    line = text.rfind("\n", 0, start) + 1
    rest = _REST.match(text, end)
    assert rest is not None
    if text[line:start].strip() or not rest[0].endswith("\n"):
        return text[:start] + text[end:].lstrip(" \t")
    return text[:line] + text[rest.end() :]


def _written(value: Any, indent: str, text: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return "\n".join([lines[0], *(indent + line for line in lines[1:])])


def _unit(text: str) -> str:
    """One level of the file's indentation."""
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]
