"""Tool drift: detects tools that differ from those at first use, by digests. Pure.

Users review a server's tools when they connect a client. A page could show harmless tools then, and others under the
same names later ("rug pull"). So the digests at first use are kept, and differences are reported until the user accepts
them. No call is refused because of drift.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

MAX_TOOLS: Final = 1024  # of one server
MAX_SHOWN: Final = 32
MAX_DEFINITIONS: Final = 64 * 1024  # bytes of definitions of one server
# Members that do not affect what a client believes about a tool.
IGNORED_KEYS: Final = frozenset({"_meta", "icons"})


@dataclass(frozen=True, slots=True)
class Drift:
    """Names of tools, each list sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        # defence: tools that change after their first use
        return bool(self.added or self.removed or self.changed)

    def describe(self) -> dict[str, list[str]] | None:
        """Fields for the status route, bounded; None without drift."""
        if not self:
            return None
        return {
            "added": _shortened(self.added),
            "removed": _shortened(self.removed),
            "changed": _shortened(self.changed),
        }

    def __str__(self) -> str:
        parts = (("changed", self.changed), ("added", self.added), ("removed", self.removed))
        return "; ".join(f"{word} {', '.join(_shortened(names))}" for word, names in parts if names)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The tools at first use, and those that the user has accepted since."""

    known: Mapping[str, str] = field(default_factory=dict)  # a tool's name -> its digest
    may_lack: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: Iterable[Mapping[str, Any]]) -> Baseline:
        return cls(_digests(tools))

    def drift(self, tools: Iterable[Mapping[str, Any]]) -> Drift:
        now = _digests(tools)
        return Drift(
            added=tuple(sorted(now.keys() - self.known.keys())),
            removed=tuple(sorted(self.known.keys() - now.keys() - self.may_lack)),
            changed=tuple(sorted(name for name in now.keys() & self.known.keys() if now[name] != self.known[name])),
        )

    def originals(self, drift: Drift, tools: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Those of `tools` that have changed or are gone since, and were so at first use: the differences can be shown.
        Only digests are kept of other tools."""
        wanted = {name: self.known[name] for name in (*drift.changed, *drift.removed)}
        known = (tool for tool in tools if wanted and wanted.get(tool.get("name", "")) in _digests([tool]).values())
        return {tool["name"]: tool for tool in as_many_as_shown(known)}

    def accepting(self, tools: Iterable[Mapping[str, Any]]) -> Baseline:
        """The baseline with the present tools accepted. Tools that are absent now may come and go later."""
        now = _digests(tools)
        known = {**self.known, **now}
        for name in sorted(known.keys() - now.keys())[: max(0, len(known) - MAX_TOOLS)]:
            del known[name]
        return Baseline(known, (self.may_lack | (known.keys() - now.keys())) & known.keys())

    def dump(self) -> dict[str, Any]:
        return {"known": dict(self.known), "may_lack": sorted(self.may_lack)}

    @classmethod
    def load(cls, value: Any) -> Baseline | None:
        """Inverse of `dump`; None for any other value."""
        # defence: the baseline over a restart
        if not isinstance(value, dict) or not isinstance(value.get("known"), dict):
            return None
        known = {name: sha for name, sha in value["known"].items() if isinstance(sha, str)}
        lack = value.get("may_lack")
        lacking = (name for name in lack if isinstance(name, str)) if isinstance(lack, list) else ()
        return cls(known, frozenset(lacking) & known.keys())


def _digests(tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tool in tools:
        if isinstance(name := tool.get("name"), str) and len(found) < MAX_TOOLS:
            compared = {key: value for key, value in tool.items() if key not in IGNORED_KEYS}
            found[name] = hashlib.sha256(orjson.dumps(compared, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    return found


def as_many_as_shown(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first tools, up to a number and a size of their definitions."""
    found: list[Mapping[str, Any]] = []
    size = 0
    for tool in tools:
        size += len(orjson.dumps(tool))
        # defence: definitions of tools that have changed
        if size > MAX_DEFINITIONS or len(found) >= MAX_SHOWN:
            break
        found.append(tool)
    return found


def _shortened(names: tuple[str, ...]) -> list[str]:
    more = len(names) - MAX_SHOWN
    return [*names[:MAX_SHOWN], *([f"and {more} more"] if more > 0 else [])]
