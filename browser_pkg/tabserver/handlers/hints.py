"""Hints of a tool that clients read from its `_meta`: how it is found, loaded, shown, and who may call it.

Each client reads those that it knows. Nothing here changes how the tool runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..schema.shapes import SchemaError
from ..wire.extensions import META_UI

Visibility = Literal["model", "app"]

_VISIBILITIES: Final = ("model", "app")
# Claude Code reads these keys.
_SEARCH: Final = "anthropic/searchHint"
_ALWAYS: Final = "anthropic/alwaysLoad"
_MOST: Final = "anthropic/maxResultSizeChars"
_USER: Final = "anthropic/requiresUserInteraction"


@dataclass(frozen=True, slots=True)
class Hints:
    """How a client should treat a tool.

    `search`: words by which a search for tools finds it. `always_load`: show the tool to the model from the start,
    although the client loads most tools when a search finds them. `max_result_chars`: show the model a result of up to
    so many characters. `requires_user_interaction`: the tool waits for the user, so it can't run unattended.
    """

    search: str | None = None
    always_load: bool | None = None
    max_result_chars: int | None = None
    requires_user_interaction: bool | None = None

    def to_meta(self) -> dict[str, Any]:
        """The members of the tool's `_meta`. Raises SchemaError for values of the wrong type."""
        meta: dict[str, Any] = {}
        for key, value, kind in (
            (_SEARCH, self.search, str),
            (_ALWAYS, self.always_load, bool),
            (_MOST, self.max_result_chars, int),
            (_USER, self.requires_user_interaction, bool),
        ):
            if value is None:
                continue
            if type(value) is not kind or (kind is int and int(value) <= 0):
                raise SchemaError(
                    f"{key}: expected {'a positive ' if kind is int else ''}{kind.__name__}, got {value!r}"
                )
            meta[key] = value
        return meta


def tool_meta(
    meta: Mapping[str, Any] | None, hints: Hints | None, visibility: Sequence[Visibility] | None
) -> dict[str, Any] | None:
    """The `_meta` of a tool. What `meta` says itself takes precedence."""
    made: dict[str, Any] = hints.to_meta() if hints is not None else {}
    if visibility is not None:
        if not visibility or any(one not in _VISIBILITIES for one in visibility):
            raise SchemaError(f'visibility: expected ["app"], ["model"] or both, got {visibility!r}')
        made[META_UI] = {"visibility": list(visibility)}
    given = dict(meta or {})
    if META_UI in made and isinstance(given.get(META_UI), dict):
        given[META_UI] = made[META_UI] | given[META_UI]
    return made | given or None
