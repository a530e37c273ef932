"""Target tab of a request: named in its `_meta`, named by an argument, or pinned by its caller.

    {"tabrelay/tab": "3f9a12bc"}                          this request
    {"tabrelay/tab": "3f9a12bc", "tabrelay/pin": true}    this one and those after it
    {"tabrelay/pin": true}                                those after it go to the tab that gets this one
    {"tabrelay/pin": false}                               none is pinned any more

Instead of the id, the object that results have under the same key is accepted. Only values: `tabs.routing` decides
which tab a request goes to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..rpc import Refusal
from ..wire.jsonrpc import INVALID_PARAMS, show
from ..wire.static_tools import META_TAB, TAB_ARGUMENT

META_PIN: Final = "tabrelay/pin"
META_ERROR: Final = "tabrelay/error"
# In the state of a call that asked its client a question: the answers go to the tab that asked.
ASKING_TAB: Final = "$tab"

_ARGUMENT: Final = {"type": "string", "description": "Optional: the id of the tab to use, from tabs_list."}


@dataclass(frozen=True, slots=True)
class Target:
    """A tab by its id; None is any. `is_pinned`: by an earlier request. `pins`: for later ones too, or not any more."""

    tab: str | None
    is_pinned: bool = False
    pins: bool | None = None


def read_target(meta: Mapping[str, Any]) -> Target | None:
    """The target in a request's `_meta`; raises Refusal for values of the wrong type."""
    if META_TAB not in meta and META_PIN not in meta:
        return None
    named, pins = meta.get(META_TAB), meta.get(META_PIN)
    id = named.get("id") if isinstance(named, dict) else named
    if META_TAB in meta and not isinstance(id, str):
        raise Refusal(INVALID_PARAMS, f"params._meta.{META_TAB}: expected the id of a tab, got {show(named)}")
    if META_PIN in meta and not isinstance(pins, bool):
        raise Refusal(INVALID_PARAMS, f"params._meta.{META_PIN}: expected boolean, got {show(pins)}")
    return Target(id, pins=pins)


def with_argument(tool: dict[str, Any]) -> dict[str, Any]:
    """A tab's tool, with the argument that names a tab, unless it has such an argument itself."""
    schema = tool["inputSchema"]
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or TAB_ARGUMENT in properties:
        return tool
    return tool | {"inputSchema": schema | {"properties": properties | {TAB_ARGUMENT: _ARGUMENT}}}


def take_argument(arguments: dict[str, Any], schema: Any) -> tuple[dict[str, Any], Target | None]:
    """The arguments without the one that names a tab, unless the tool has such an argument itself.

    Models fill in optional arguments: null and the empty string name no tab.
    """
    if TAB_ARGUMENT not in arguments or (isinstance(schema, dict) and TAB_ARGUMENT in schema.get("properties", {})):
        return arguments, None
    rest = dict(arguments)
    given = rest.pop(TAB_ARGUMENT)
    if given is None or given == "":
        return rest, None
    return rest, Target(given if isinstance(given, str) else show(given))
