"""How deep JSON nests. Pure, and without recursion: what it is asked about may be made to break one."""

from __future__ import annotations

from typing import Any


def is_deeper_than(value: Any, levels: int) -> bool:
    """Are there lists or objects inside each other, more than so many? An empty one counts like any other."""
    layer = [value] if isinstance(value, dict | list) else []
    while layer and levels > 0:
        levels -= 1
        layer = [
            item
            for node in layer
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
    return bool(layer)
