"""In-place edits of TOML: one table is set or removed, and the rest stays unchanged.

Only a table with its own header can be changed; for one that is written inline or with dotted keys, TomlError is
raised. Pure; the caller compares the result with the intent.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

_HEADER: Final = re.compile(r"^[ \t]*\[(?!\[)[ \t]*(?P<name>[^\]\n]+?)[ \t]*\][ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_ANY_HEADER: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class TomlError(ValueError):
    """The text can't be parsed, or not changed in place; the text gives the reason."""


def parse(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None


def put(text: str, path: tuple[str, ...], table: dict[str, Any]) -> str:
    """Sets the table at `path` to these plain values. Raises TomlError."""
    rest = remove(text, path)
    lines = [f"[{'.'.join(map(_key, path))}]", *(f"{_key(name)} = {_value(value)}" for name, value in table.items())]
    gap = "" if not rest.strip() else "\n" if rest.endswith("\n") else "\n\n"
    return _checked(rest + gap + "\n".join(lines) + "\n", path, table)


def remove(text: str, path: tuple[str, ...]) -> str:
    """The text without the table at `path` and those below it; unchanged if there is none. Raises TomlError."""
    parse(text)
    while (found := _find(text, path)) is not None:
        start, end = found
        text = text[:start].rstrip("\n") + ("\n" if text[:start].strip() else "") + text[end:]
    return _checked(text, path, None)


def _find(text: str, path: tuple[str, ...]) -> tuple[int, int] | None:
    for header in _HEADER.finditer(text):
        if _parts(header["name"])[: len(path)] == path:
            following = _ANY_HEADER.search(text, header.end())
            return header.start(), following.start() if following else len(text)
    return None


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a header's dotted name, parsed by tomllib."""
    try:
        found: Any = tomllib.loads(f"[{name}]")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while found:
        [(part, found)] = found.items()
        parts.append(part)
    return tuple(parts)


def _checked(text: str, path: tuple[str, ...], table: dict[str, Any] | None) -> str:
    """Checks that the table is as intended, and not also written in another form."""
    found: Any = parse(text)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if found != table:
        raise TomlError(f"{'.'.join(path)} is not written as a table of its own: please change it by hand.")
    return text


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    """Strings and lists of strings have the same form in JSON and TOML."""
    return json.dumps(value, ensure_ascii=False)
