"""JSON Schemas of unions: the simplest schema that says the same, for clients that read one `type` for each value.

Works on schemas and not on types. Equal members, enums of one type and members that another one contains are merged.
What is left is one schema, or `anyOf` with one `type` in each branch and null last. A list of types
(`"type": ["integer", "null"]`) is never written: several clients and models refuse a tool that has one.

Does not read values: what a union accepts is decided by its shape (`compounds.Either`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Schema = dict[str, Any]

NULL: Final[Schema] = {"type": "null"}
_SCALARS: Final = ("string", "integer", "number", "boolean")
# Keywords of a wrapper that describe the value and do not limit it.
_NOTES: Final = ("description", "title")


def union_of(members: Iterable[Schema]) -> Schema:
    """The schema of a value that one of these describes."""
    found: list[Schema] = []
    for member in members:
        for one in _branches(member):
            if one not in found:
                found.append(one)
    if {} in found:
        return {}  # any value, and null is one
    found = _merge_enums(found)
    found = [one for one in found if not any(_contains(other, one) for other in found if other is not one)]
    found.sort(key=lambda one: one == NULL)
    return found[0] if len(found) == 1 else {"anyOf": found}


def without_null(schema: Schema) -> Schema:
    """The schema for an argument that may be left out, where null means the same."""
    branches = [one for one in schema.get("anyOf", ()) if one != NULL]
    if not branches or len(branches) == len(schema["anyOf"]):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return (branches[0] if len(branches) == 1 else {"anyOf": branches}) | rest


def with_keywords(schema: Schema, keywords: Schema) -> Schema:
    """A schema with further keywords. Those of an optional value belong to the branch that is not null."""
    branches = schema.get("anyOf")
    if not keywords or branches is None or len(branches) != 2 or branches[1] != NULL:
        return schema | keywords
    return schema | {"anyOf": [branches[0] | keywords, NULL]}


def _branches(schema: Schema) -> list[Schema]:
    """The members of a union in a union. One that has a description of its own stays whole."""
    return schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]


def _merge_enums(found: list[Schema]) -> list[Schema]:
    merged: dict[str, Schema] = {}
    kept: list[Schema] = []
    for one in found:
        if one.keys() != {"type", "enum"}:
            kept.append(one)
        elif (first := merged.get(one["type"])) is None:
            merged[one["type"]] = one = dict(one)
            kept.append(one)
        else:
            first["enum"] = [*first["enum"], *(value for value in one["enum"] if value not in first["enum"])]
    return kept


def _contains(outer: Schema, inner: Schema) -> bool:
    """Is each value of `inner` a value of `outer`, which is a type without limits?"""
    kind = outer.get("type")
    if kind not in _SCALARS or outer.keys() != {"type"} or any(note in inner for note in _NOTES):
        return False
    return inner.get("type") == kind or (kind == "number" and inner.get("type") == "integer")
