"""In-place edits of TOML with tomlkit: one table is set or removed, and the rest stays unchanged.

Tables with a header and inline tables can be changed. tomlkit misplaces some dotted keys: the caller compares the
result with the intent, and refuses such a change. Pure.
"""

from __future__ import annotations

from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table
from tomlkit.toml_document import TOMLDocument


class TomlError(ValueError):
    """The text can't be parsed, or not changed in place; the text gives the reason."""


def parse(text: str) -> Any:
    return _document(text).unwrap()


def put(text: str, path: tuple[str, ...], table: dict[str, Any]) -> str:
    """Sets the table at `path` to these plain values. Raises TomlError."""
    document = _document(text)
    parent: Any = document
    for name in path[:-1]:
        parent = parent.setdefault(name, tomlkit.table(is_super_table=True))
    parent[path[-1]] = table
    if isinstance(parent[path[-1]], Table) and list(document)[-1] != path[0]:
        parent[path[-1]].add(tomlkit.nl())  # before the table that follows
    return document.as_string()


def remove(text: str, path: tuple[str, ...]) -> str:
    """The text without the table at `path` and those below it; unchanged if there is none. Raises TomlError."""
    document = _document(text)
    parent: Any = document
    for name in path[:-1]:
        parent = parent.get(name, {})
    if parent.pop(path[-1], None) is None:
        return text
    return document.as_string().rstrip("\n") + "\n"  # without the blank line before a table that was the last


def _document(text: str) -> TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise TomlError(str(error)) from None
