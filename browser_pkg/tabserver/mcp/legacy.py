"""Results in the form of the oldest protocol versions, which lack some kinds of content.

Their clients refuse a whole result for one unknown block, so each such block is replaced. Does not decide a caller's
version.
"""

from __future__ import annotations

from typing import Any, Final

from ..handlers.context import Result

LINKS_SINCE: Final = "2025-06-18"
AUDIO_SINCE: Final = "2025-03-26"


def legacy_result(result: Result, version: str) -> Result:
    """A tool result that clients of this version can read."""
    if version < LINKS_SINCE and isinstance(result.get("content"), list):
        return result | {"content": [legacy_block(block, version) for block in result["content"]]}
    return result


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
