"""A page that is attached to the worker, as a value; and what it may offer. Who gets a call is decided in `places`."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

Message = Mapping[str, Any]
Item = dict[str, Any]

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TOOL_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


class Port(Protocol):
    """The way to one page."""

    def send(self, message: Message) -> None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that a tab has. `since`: when the page first offered it; it outlives the worker, so that after a crash
    the first is still the first. `mark`: the same for equal definitions. `is_kept`: its page is being loaded again, so
    it is still listed, but can't be had before it is offered again.
    """

    item: Item
    since: float
    mark: str
    is_kept: bool = False


@dataclass(slots=True, eq=False)
class Tab:
    """A browser's tab, by the id that it keeps over reloads. `port`: None while its page is being loaded again.
    `touched` says when it was last shown, hidden or focused.

    `is_frozen`: it said that the browser stops it; `is_silent`: it was asked whether it lives and did not answer.
    `offers`: what it has of each kind, by name or URI.
    """

    port: Port | None
    id: str
    title: str
    url: str
    is_visible: bool
    touched: int
    attached: int
    is_frozen: bool = False
    is_silent: bool = False
    # How often its page was left: whoever waits for its return must not take a later absence for this one.
    leaves: int = 0
    offers: dict[str, dict[str, Offer]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def rank(self) -> tuple[bool, bool, bool, int, int]:
        """Which tab gets a call that several could take: the one the user sees, else the one seen last."""
        return self.port is not None, self.is_awake, self.is_visible, self.touched, self.attached

    @property
    def is_awake(self) -> bool:
        return not (self.is_frozen or self.is_silent)

    @property
    def label(self) -> str:
        return f'"{self.title}"' if self.title else self.url or self.id

    def send(self, message: Message) -> None:
        """To its page, if it has one."""
        if self.port is not None:
            self.port.send(message)


def check_tool(tool: Any) -> Item:
    """What a page offers, reduced to the fields of an MCP tool; raises ValueError with what is wrong."""
    if not isinstance(tool, dict):
        raise ValueError("A tool is an object with a name, a description and an inputSchema.")
    if not _TOOL_NAME.fullmatch(str(tool.get("name", ""))):
        raise ValueError("A tool's name has 1 to 128 letters, digits, '_', '-' or '.'.")
    checked = {key: tool[key] for key in _TOOL_FIELDS if tool.get(key) is not None}
    schema = checked.setdefault("inputSchema", {"type": "object"})
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ValueError('Its inputSchema must be a JSON Schema with "type": "object".')
    if not isinstance(checked.get("outputSchema", {}), dict):
        raise ValueError("Its outputSchema must be a JSON Schema.")
    return checked


def mark_of(item: Item) -> str:
    """The same for equal definitions, in whatever order their members come."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


# What a page may offer of each kind: reduces it to what MCP knows, or raises ValueError with what is wrong.
CHECKS: Final[Mapping[str, Callable[[Any], Item]]] = {"tools": check_tool}
