"""What the older revisions can't say, said the way they can.

They know structured results that are objects only; the modern one knows any JSON value. A tool's own form is the modern
one.
"""

from __future__ import annotations

from typing import Any

from .context import Result


def legacy_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool whose output is no object says that it gives an object with that output as its `result`."""
    schema = tool.get("outputSchema")
    if schema is None or _is_object(schema):
        return tool
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    outer = {key: schema[key] for key in ("$defs", "$schema") if key in schema}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return tool | {"outputSchema": wrapped | outer}


def legacy_result(tool: dict[str, Any] | None, result: Result) -> Result:
    """The result of that tool, as its legacy schema promises it."""
    if "structuredContent" not in result:
        return result
    value, schema = result["structuredContent"], (tool or {}).get("outputSchema")
    if isinstance(value, dict) and (schema is None or _is_object(schema)):
        return result
    return result | {"structuredContent": {"result": value}}


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"
