"""Elicitation at the terminal: a server's questions to the user, as a form field by field or as a URL to visit.

Text of the server is made safe for the terminal. Without a terminal the commands do not offer elicitation at all.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable
from typing import Any, Final

from tabrelay.cli.render import printable

DECLINE: Final = {"action": "decline"}
CANCEL: Final = {"action": "cancel"}


async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Reads in a thread: the connection must stay alive while the user thinks."""
    return await asyncio.to_thread(answer, params, _read)


def _read(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def answer(params: dict[str, Any], read: Callable[[str], str]) -> dict[str, Any]:
    """`read` shows a prompt and returns the typed line; EOFError cancels."""
    message = printable(str(params.get("message", "")))
    try:
        if params.get("mode") == "url":
            shown = f"{message}\n  {printable(str(params.get('url', '')))}\nVisit it, then press Enter (n: don't): "
            return DECLINE if read(shown).strip().lower() == "n" else {"action": "accept"}
        schema = params.get("requestedSchema")
        fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
        required = schema.get("required", ()) if isinstance(schema, dict) else ()
        if read(f"{message}\nThe server asks. Answer? [Y/n] ").strip().lower() == "n":
            return DECLINE
        found = {name: _field(name, one, name in required, read) for name, one in fields.items()}
    except EOFError:
        return CANCEL
    return {"action": "accept", "content": {name: value for name, value in found.items() if value is not None}}


def _field(name: str, schema: dict[str, Any], is_required: bool, read: Callable[[str], str]) -> Any:
    """Asks until the answer is valid. An empty line means the default, or no value if the field is optional."""
    choices = schema.get("enum") or [one.get("const") for one in schema.get("oneOf", ())]
    about = printable(str(schema.get("title") or schema.get("description") or name))
    more = f" ({' | '.join(map(str, choices))})" if choices else ""
    default = schema.get("default")
    shown = "" if default is None else f" [{json.dumps(default, ensure_ascii=False)}]"
    while True:
        text = read(f"  {about}{printable(more)}{printable(shown)}: ").strip()
        if not text and (default is not None or not is_required):
            return default
        try:
            value = _value(text, str(schema.get("type", "string")))
        except ValueError:
            continue
        if not choices or value in choices:
            return value


def _value(text: str, type: str) -> Any:
    if type == "integer":
        return int(text)
    if type == "number":
        if not math.isfinite(number := float(text)):
            raise ValueError
        return number
    if type == "boolean":
        if text.lower() in ("y", "yes", "true", "1", "n", "no", "false", "0"):
            return text.lower() in ("y", "yes", "true", "1")
        raise ValueError
    if type == "array":
        return [part.strip() for part in text.split(",")]
    if not text:
        raise ValueError
    return text
