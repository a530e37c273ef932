"""Which tab a request wants: named in its `_meta`, named by an argument, or pinned by its caller. A value, no decision.

`_meta` takes the tab's id, or the object that results carry under the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .messages import Refusal
from .shapes import show
from .wire.jsonrpc import INVALID_PARAMS

META_TAB: Final = "tabrelay/tab"
META_ERROR: Final = "tabrelay/error"
# For models, which can't write `_meta`: taken out before the tool sees its arguments.
TAB_ARGUMENT: Final = "_tab"


@dataclass(frozen=True, slots=True)
class Target:
    """A tab by its id."""

    tab: str
    is_pin: bool = False


def read_target(meta: Mapping[str, Any]) -> Target | None:
    """The tab that a request names in its `_meta`; raises Refusal for what is no tab's id."""
    if META_TAB not in meta:
        return None
    given = meta[META_TAB]
    id = given.get("id") if isinstance(given, dict) else given
    if not isinstance(id, str):
        raise Refusal(INVALID_PARAMS, f"params._meta.{META_TAB}: expected the id of a tab, got {show(given)}")
    return Target(id)


def take_argument(arguments: dict[str, Any], schema: Any) -> tuple[dict[str, Any], Target | None]:
    """The arguments without the one that names a tab, unless the tool has such an argument itself.

    Models fill in what they could leave out: null and the empty string name no tab.
    """
    if TAB_ARGUMENT not in arguments or (isinstance(schema, dict) and TAB_ARGUMENT in schema.get("properties", {})):
        return arguments, None
    rest = dict(arguments)
    given = rest.pop(TAB_ARGUMENT)
    if given is None or given == "":
        return rest, None
    return rest, Target(given if isinstance(given, str) else show(given))
