"""Identity of a server: what its pages and modules say of it to clients: title, version, instructions, icons, website.

Clients get it in `initialize` and `server/discover`. Each field is optional. Of several identities the first one that
has a field decides it. Which protocol version has which field is in `wire.eras`.

Does not check for hidden text: the relay does, for servers of every kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from ..wire.limits import MAX_TITLE

# Claude Code shows its model this many characters; many clients show no other prose at the start.
SHOWN_INSTRUCTIONS: Final = 2048
MAX_INSTRUCTIONS: Final = 64 * 1024  # the relay leaves out longer ones
MAX_TEXT: Final = 2048  # of a version and an address
MAX_ICONS: Final = 16
MAX_ICON: Final = 16 * 1024  # characters of an icon's address, which may be a data: URL
_WIRE: Final = {"website_url": "websiteUrl"}
_MOST: Final = {"title": MAX_TITLE, "version": MAX_TEXT, "instructions": MAX_INSTRUCTIONS, "website_url": MAX_TEXT}


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a page or a module says of its server. None: nothing."""

    title: str | None = None
    version: str | None = None
    instructions: str | None = None
    website_url: str | None = None
    icons: tuple[Mapping[str, Any], ...] | None = None

    @classmethod
    def read(cls, given: object) -> ServerIdentity:
        """From the form of `connect`; raises ValueError with what is wrong."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise ValueError("the identity of a server is an object")
        found: dict[str, Any] = {}
        for name, most in _MOST.items():
            value = given.get(_WIRE.get(name, name))
            if value is None:
                continue
            # defence: the size of what a page says of its server
            if not isinstance(value, str) or len(value) > most:
                raise ValueError(f"{_WIRE.get(name, name)} is text of at most {most:,} characters")
            found[name] = value
        if given.get("icons") is not None:
            found["icons"] = _icons(given["icons"])
        return cls(**found)

    @classmethod
    def merged(cls, identities: Iterable[ServerIdentity]) -> ServerIdentity:
        """Each field from the first identity that has it."""
        found: dict[str, Any] = {}
        for identity in identities:
            for one in fields(cls):
                value = getattr(identity, one.name)
                if value is not None:
                    found.setdefault(one.name, value)
        return cls(**found)

    def info(self, name: str, version: str) -> dict[str, Any]:
        """`serverInfo` of the newest protocol version."""
        info: dict[str, Any] = {"name": name, "version": self.version or version}
        if self.title:
            info["title"] = self.title
        if self.website_url:
            info["websiteUrl"] = self.website_url
        if self.icons:
            info["icons"] = [dict(icon) for icon in self.icons]
        return info

    def to_options(self) -> dict[str, Any]:
        """In the form of `connect`."""
        options = {_WIRE.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        if self.icons is not None:
            options["icons"] = [dict(icon) for icon in self.icons]
        return {name: value for name, value in options.items() if value is not None}


NO_IDENTITY: Final = ServerIdentity()


def too_long(instructions: str | None) -> str | None:
    """The warning about instructions that clients cut; None if they do not."""
    if instructions is None or len(instructions) <= SHOWN_INSTRUCTIONS:
        return None
    return (
        f"The instructions have {len(instructions):,} characters. Some clients cut them after {SHOWN_INSTRUCTIONS:,}, "
        "such as Claude Code. Put what matters first, or shorten them."
    )


def _icons(given: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(given, list | tuple) or len(given) > MAX_ICONS:
        raise ValueError(f"icons is a list of at most {MAX_ICONS} icons")
    return tuple(_icon(icon) for icon in given)


def _icon(icon: object) -> Mapping[str, Any]:
    """An icon with the members that MCP defines."""
    source = icon.get("src") if isinstance(icon, Mapping) else None
    if not isinstance(icon, Mapping) or not isinstance(source, str) or len(source) > MAX_ICON:
        raise ValueError(f'an icon has "src", an address of at most {MAX_ICON:,} characters')
    if not source.startswith(("https:", "http:", "data:")):
        raise ValueError('the "src" of an icon is an https: or data: address')
    made: dict[str, Any] = {"src": source}
    for name in ("mimeType", "theme"):
        if isinstance(icon.get(name), str) and len(icon[name]) <= MAX_TEXT:
            made[name] = icon[name]
    sizes = icon.get("sizes")
    if isinstance(sizes, list | tuple) and len(sizes) <= MAX_ICONS and all(isinstance(size, str) for size in sizes):
        made["sizes"] = [size[:MAX_TITLE] for size in sizes]
    return made
