"""Tools and results in the form of protocol versions before 2026-07-28.

Handlers produce the modern form. Older versions allow only objects as structured results, and the oldest lack some
kinds of content: their clients refuse a whole result for one unknown block. The version of a
caller is not decided here.
"""

from __future__ import annotations

from typing import Any, Final

from ..handlers.context import Result

LINKS_SINCE: Final = "2025-06-18"
AUDIO_SINCE: Final = "2025-03-26"


def legacy_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Wrap an output schema that is not an object into an object with one property, `result`."""
    schema = tool.get("outputSchema")
    if schema is None or _is_object(schema):
        return tool
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    outer = {key: schema[key] for key in ("$defs", "$schema") if key in schema}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return tool | {"outputSchema": wrapped | outer}


def legacy_result(tool: dict[str, Any] | None, result: Result, version: str) -> Result:
    """A tool result that matches the schema of `legacy_tool`."""
    if version < LINKS_SINCE and isinstance(result.get("content"), list):
        result = result | {"content": [legacy_block(block, version) for block in result["content"]]}
    if "structuredContent" not in result:
        return result
    value, schema = result["structuredContent"], (tool or {}).get("outputSchema")
    if isinstance(value, dict) and (schema is None or _is_object(schema)):
        return result
    return result | {"structuredContent": {"result": value}}


def legacy_prompt(result: Result, version: str) -> Result:
    if version >= LINKS_SINCE:
        return result
    messages = [
        message | {"content": legacy_block(message["content"], version)} for message in result.get("messages", ())
    ]
    return result | {"messages": messages}


def legacy_block(block: Any, version: str) -> Any:
    """Replace a resource link by text, and audio by a resource, for versions without them."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "resource_link" and version < LINKS_SINCE:
        return {"type": "text", "text": f"{block.get('title') or block.get('name')}: {block.get('uri')}"}
    if kind == "audio" and version < AUDIO_SINCE:
        held = {"uri": "about:audio", "mimeType": block.get("mimeType"), "blob": block.get("data")}
        return {"type": "resource", "resource": held}
    return block


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"
