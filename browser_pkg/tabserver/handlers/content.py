"""Content blocks as Python values: text, images, audio, embedded resources, links, and messages of prompts.

    return ["This is what the page shows:", Image(png_bytes)]

Each class has its own JSON form. How a list of them becomes a result is decided in `tools`, `prompts` and `resources`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, Literal

Block = dict[str, Any]
Role = Literal["user", "assistant"]

_KINDS: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource": ("resource",),
    "resource_link": ("uri", "name"),
}


@dataclass(frozen=True, slots=True)
class Text:
    """Text with annotations (`audience`, `priority`, `lastModified`). Without any, a plain `str` does the same."""

    text: str
    annotations: dict[str, Any] | None = None

    def block(self) -> Block:
        return {"type": "text", "text": self.text} | _given(annotations=self.annotations)


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its bytes, or base64 text."""

    data: bytes | str
    mime_type: str = "image/png"
    annotations: dict[str, Any] | None = None

    def block(self) -> Block:
        return {"type": "image", "data": _base64(self.data), "mimeType": self.mime_type} | _given(
            annotations=self.annotations
        )


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio: its bytes, or base64 text."""

    data: bytes | str
    mime_type: str = "audio/wav"
    annotations: dict[str, Any] | None = None

    def block(self) -> Block:
        return {"type": "audio", "data": _base64(self.data), "mimeType": self.mime_type} | _given(
            annotations=self.annotations
        )


@dataclass(frozen=True, slots=True)
class Embedded:
    """A resource inside the result: text as `str`, anything else as `bytes`."""

    uri: str
    data: str | bytes
    mime_type: str | None = None
    annotations: dict[str, Any] | None = None

    def contents(self) -> Block:
        """Its form in the result of `resources/read`."""
        held = {"text": self.data} if isinstance(self.data, str) else {"blob": _base64(self.data)}
        return {"uri": self.uri} | _given(mimeType=self.mime_type) | held

    def block(self) -> Block:
        return {"type": "resource", "resource": self.contents()} | _given(annotations=self.annotations)


@dataclass(frozen=True, slots=True)
class Link:
    """A reference to a resource, without its content."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: dict[str, Any] | None = None

    def block(self) -> Block:
        return {"type": "resource_link", "uri": self.uri, "name": self.name} | _given(
            title=self.title,
            description=self.description,
            mimeType=self.mime_type,
            size=self.size,
            annotations=self.annotations,
        )


Content = Text | Image | Audio | Embedded | Link
CONTENT: Final = (Text, Image, Audio, Embedded, Link)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt, or of a conversation that a model continues."""

    role: Role
    content: str | Content | Block

    def to_dict(self) -> dict[str, Any]:
        return {"role": self.role, "content": to_block(self.content)}


def to_block(value: str | Content | Block) -> Block:
    """One content block; raises TypeError for other values."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if isinstance(value, CONTENT):
        return value.block()
    if is_block(value):
        return value
    raise TypeError(f"expected text or content, got {type(value).__name__}")


def is_block(value: object) -> bool:
    """Whether a value is a content block in its JSON form."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(value, dict) and isinstance(kind, str) and all(key in value for key in _KINDS.get(kind, ("",)))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _base64(data: bytes | str) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode()
