"""In-place edits of JSON with comments and trailing commas (JSONC): one member is set or removed.

Everything else, including comments and indentation, stays unchanged. Pure; `file` compares the result with the intent.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

_GAP: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_REST: Final = re.compile(r"[ \t]*(?://[^\n]*)?\n?")
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)
MAX_DEPTH: Final = 200


class JsoncError(ValueError):
    """Not JSON, or not the expected structure; the text gives the position."""


@dataclass(slots=True)
class JsoncNode:
    """A value and its position. Objects have members, in their order."""

    value: Any
    start: int
    end: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    is_object: bool = False


@dataclass(slots=True)
class Member:
    start: int
    node: JsoncNode
    comma: int | None = None
    """The position of the comma after it, if there is one."""


def parse(text: str) -> Any:
    """Raises JsoncError."""
    return _root(text).value


def put(text: str, path: tuple[str, ...], value: Any) -> str:
    """Sets the member at `path` and creates missing objects. Raises JsoncError."""
    if not text.strip():
        text = "{}\n"
    node = _root(text)
    for depth, name in enumerate(path):
        if not node.is_object:
            raise JsoncError(f"{'.'.join(path[:depth]) or 'The whole'} is not an object.")
        member = node.members.get(name)
        if member is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return _insert(text, node, name, value)
        node = member.node
    return text[: node.start] + _written(value, _indent_at(text, node.start), text) + text[node.end :]


def remove(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at `path`; unchanged if there is none. Raises JsoncError."""
    node = _root(text)
    for name in path[:-1]:
        member = node.members.get(name)
        if member is None:
            return text
        node = member.node
    if path[-1] not in node.members:
        return text
    names = list(node.members)
    at = names.index(path[-1])
    here = node.members[path[-1]]
    end = here.node.end if here.comma is None else here.comma + 1
    if at + 1 < len(names):
        return _without_line(text, here.start, end)
    if at:
        # The previous member becomes the last. A comment between the two belongs to it, and stays.
        comma = node.members[names[at - 1]].comma
        assert comma is not None
        kept = "," if here.comma is not None else ""
        return text[:comma] + kept + text[comma + 1 : here.start].rstrip() + text[end:]
    start = here.start
    if not text[node.start + 1 : start].strip() and not text[end : node.end - 1].strip():
        start, end = node.start + 1, node.end - 1
    return text[:start] + text[end:]


def _without_line(text: str, start: int, end: int) -> str:
    """The text without this part, and without the rest of its line if that is only a comment on it."""
    line = text.rfind("\n", 0, start) + 1
    rest = _REST.match(text, end)
    assert rest is not None
    if text[line:start].strip() or not rest[0].endswith("\n"):
        return text[:start] + text[end:].lstrip(" \t")
    return text[:line] + text[rest.end() :]


# -- writing -----------------------------------------------------------------------------------------------------------


def _insert(text: str, node: JsoncNode, name: str, value: Any) -> str:
    outer = _indent_at(text, node.start)
    if not node.members:
        inner = outer + _unit(text)
        kept = text[node.start + 1 : node.end - 1].rstrip()
        member = f"{json.dumps(name, ensure_ascii=False)}: {_written(value, inner, text)}"
        return f"{text[: node.start + 1]}{kept}\n{inner}{member}\n{outer}{text[node.end - 1 :]}"
    last = list(node.members.values())[-1]
    inner = _indent_at(text, last.start)
    member = f"{json.dumps(name, ensure_ascii=False)}: {_written(value, inner, text)}"
    comma, trailing = (",", "") if last.comma is None else ("", ",")
    # After a comment on the last member, but before the end of the object.
    end = node.start + len(text[node.start : node.end - 1].rstrip())
    return f"{text[: last.node.end]}{comma}{text[last.node.end : end]}\n{inner}{member}{trailing}{text[end:]}"


def _written(value: Any, indent: str, text: str) -> str:
    unit = _unit(text)
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return "\n".join([lines[0], *(indent + line for line in lines[1:])])


def _unit(text: str) -> str:
    """One level of the file's indentation."""
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


# -- reading -----------------------------------------------------------------------------------------------------------


def _root(text: str) -> JsoncNode:
    reader = _Reader(text)
    node = reader.value(reader.gap(1 if text.startswith("\ufeff") else 0), 0)
    if reader.gap(node.end) != len(text):
        raise reader.error(node.end, "nothing more was expected")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, at: int, what: str) -> JsoncError:
        line = self._text.count("\n", 0, at) + 1
        return JsoncError(f"Line {line}, column {at - self._text.rfind(chr(10), 0, at)}: {what}.")

    def gap(self, at: int) -> int:
        """The position after blanks and comments."""
        found = _GAP.match(self._text, at)
        return found.end() if found else at

    def _char(self, at: int) -> str:
        return self._text[at : at + 1]

    def value(self, at: int, depth: int) -> JsoncNode:
        if depth > MAX_DEPTH:
            raise self.error(at, "too deep")
        char = self._char(at)
        if char == "{":
            return self._object(at, depth)
        if char == "[":
            return self._array(at, depth)
        found = (_STRING if char == '"' else _PLAIN).match(self._text, at)
        if found is None:
            raise self.error(at, "a value was expected")
        try:
            return JsoncNode(json.loads(found[0]), at, found.end())
        except ValueError:
            raise self.error(at, "this is not a value") from None

    def _object(self, at: int, depth: int) -> JsoncNode:
        node = JsoncNode({}, at, is_object=True)
        at = self.gap(at + 1)
        while self._char(at) != "}":
            key = _STRING.match(self._text, at)
            if key is None:
                raise self.error(at, "a name in quotes was expected")
            colon = self.gap(key.end())
            if self._char(colon) != ":":
                raise self.error(colon, "a colon was expected")
            member = Member(at, self.value(self.gap(colon + 1), depth + 1))
            name = json.loads(key[0])
            if name in node.members:
                raise self.error(at, f"{name!r} is there twice")
            node.members[name] = member
            node.value[name] = member.node.value
            at = self.gap(member.node.end)
            if self._char(at) == ",":
                member.comma = at
                at = self.gap(at + 1)
            elif self._char(at) != "}":
                raise self.error(at, "a comma was expected")
        node.end = at + 1
        return node

    def _array(self, at: int, depth: int) -> JsoncNode:
        node = JsoncNode([], at)
        at = self.gap(at + 1)
        while self._char(at) != "]":
            item = self.value(at, depth + 1)
            node.value.append(item.value)
            at = self.gap(item.end)
            if self._char(at) == ",":
                at = self.gap(at + 1)
            elif self._char(at) != "]":
                raise self.error(at, "a comma was expected")
        node.end = at + 1
        return node
