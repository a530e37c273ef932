"""Formatting of tool results and tool lists as text, Markdown or JSON.

Text from a server is untrusted: on a terminal, control characters that would move the cursor or hide text are shown
escaped. Pure, except that images and other binary content are written to files.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FORMATS: Final = ("text", "json", "markdown")
# Control characters of escape sequences, and marks that change the direction of text.
_HARMFUL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENDINGS: Final = {"image/jpeg": ".jpg", "audio/wav": ".wav", "audio/mpeg": ".mp3", "image/webp": ".webp"}


def printable(text: str) -> str:
    return _HARMFUL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


class OutputFolder:
    """Writes images, sound and other binary content to files with unused names."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "result"
        self._number = 0
        self.written: list[Path] = []

    def write(self, data: str, type: str) -> Path | None:
        """The file's path; None if the data is not base64."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        ending = _ENDINGS.get(type) or mimetypes.guess_extension(type) or ".bin"
        while True:
            self._number += 1
            path = self._path / f"{self._name}-{self._number}{ending}"
            try:
                with path.open("xb") as file:
                    file.write(content)
                self.written.append(path)
                return path
            except FileExistsError:
                continue


def result(value: dict[str, Any], format: str, folder: OutputFolder) -> str:
    if format == "json":
        return json.dumps(value, ensure_ascii=False, indent=2)
    is_markdown = format == "markdown"
    blocks = value.get("content")
    parts = [_block(block, is_markdown, folder) for block in blocks if isinstance(block, dict)] if blocks else []
    structured = value.get("structuredContent")
    if structured is not None and not any(parts):
        text = json.dumps(structured, ensure_ascii=False, indent=2)
        parts = [f"```json\n{text}\n```" if is_markdown else text]
    return ("\n\n" if is_markdown else "\n").join(part for part in parts if part)


def _block(block: dict[str, Any], is_markdown: bool, folder: OutputFolder) -> str:
    type = block.get("type")
    if type == "text":
        return str(block.get("text", ""))
    if type in ("image", "audio"):
        return _file(str(block.get("data", "")), str(block.get("mimeType", "")), type, is_markdown, folder)
    if type == "resource_link":
        name, uri = str(block.get("title") or block.get("name") or ""), str(block.get("uri", ""))
        return f"[{name or uri}]({uri})" if is_markdown else f"{name} {uri}".strip()
    if type == "resource" and isinstance(resource := block.get("resource"), dict):
        if "text" in resource:
            return str(resource["text"])
        return _file(str(resource.get("blob", "")), str(resource.get("mimeType", "")), "resource", is_markdown, folder)
    return f"({type}: this version can't show it; -f json does)"


def _file(data: str, type: str, kind: str, is_markdown: bool, folder: OutputFolder) -> str:
    path = folder.write(data, type)
    if path is None:
        return f"({kind} of type {type}, damaged)"
    if is_markdown:
        # The file is in the same directory as the text, so the link is the bare name.
        return f"{'!' if kind == 'image' else ''}[{kind}]({path.name})"
    return f"[{kind}, {type}: {path}]"


def tools(rows: list[dict[str, Any]], format: str) -> str:
    if format == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2)
    if not rows:
        return "The server has no tools."
    return "\n".join(_tool(row, format == "markdown") for row in rows).rstrip()


def _tool(row: dict[str, Any], is_markdown: bool) -> str:
    name, about = str(row.get("name", "")), str(row.get("description") or row.get("title") or "").strip()
    schema = row.get("inputSchema")
    arguments = list(_arguments(schema if isinstance(schema, dict) else {}))
    if is_markdown:
        lines = [f"### {name}", "", about, ""] if about else [f"### {name}", ""]
        if arguments:
            lines += ["| argument | type | | |", "|---|---|---|---|"]
            cells = [(f"`{a}`", t, "required" if need else "", text) for a, t, need, text in arguments]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells] + [""]
        return "\n".join(lines)
    lines = [name, *(f"    {line}" for line in about.splitlines())]
    for argument, type, is_required, text in arguments:
        more = f"  {text}" if text else ""
        lines.append(f"      {argument}: {type}{'' if is_required else ' (optional)'}{more}")
    return "\n".join(lines) + "\n"


def _arguments(schema: dict[str, Any]) -> Iterator[tuple[str, str, bool, str]]:
    """Name, type, whether it is required, and the description."""
    properties = schema.get("properties")
    required = schema.get("required")
    for name, one in properties.items() if isinstance(properties, dict) else ():
        one = one if isinstance(one, dict) else {}
        text = " ".join(str(one.get("description", "")).split())
        if "default" in one:
            text = f"{text} (default {json.dumps(one['default'], ensure_ascii=False)})".strip()
        yield str(name), _type(one), isinstance(required, list) and name in required, text


def _type(schema: dict[str, Any]) -> str:
    if isinstance(choices := schema.get("enum"), list):
        return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    if isinstance(options := schema.get("anyOf") or schema.get("oneOf"), list):
        return " | ".join(_type(option) for option in options if isinstance(option, dict)) or "any"
    type = schema.get("type", "any")
    if type == "array" and isinstance(items := schema.get("items"), dict):
        return f"{_type(items)}[]"
    return " | ".join(map(str, type)) if isinstance(type, list) else str(type)
