"""Redaction of JSON values: secrets by their form, by registration, and by the names of the members that hold them.

The same for the call log and for captured calls, so that no view shows what another one hides. Texts of log lines are
redacted in `log_setup`. Does not shorten anything.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tabrelay.observe.log_setup import redact

HIDDEN: Final = "[redacted]"
# Names of arguments whose values are secrets.
SECRET_NAME: Final = re.compile(
    r"pass(word|phrase|code|wd)|secret|token|(api|private)_?key|credential|authorization", re.IGNORECASE
)
LONGEST: Final = 4096  # characters of a secret
# A string of JSON with the value behind it, as far as that is there. It never backtracks.
_MEMBER: Final = re.compile(
    r'("(?:[^"\\]|\\.)*+"\s*+:\s*+)("(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[^\s,}\]"\[{]++)', re.DOTALL
)
# Members of MCP's own messages that match it and hold no secret.
NO_SECRETS: Final = frozenset({"progressToken", "maxTokens"})


def is_secret_name(name: str) -> bool:
    return SECRET_NAME.search(name) is not None and name not in NO_SECRETS


def redacted(value: Any) -> Any:
    """A JSON value without secrets."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redacted(each) for each in value]
    if isinstance(value, dict):
        return {redact(key): HIDDEN if is_secret_name(key) else redacted(each) for key, each in value.items()}
    return value


def redacted_beginning(text: str) -> str:
    """The beginning of a JSON text that was cut, without secrets. A list or an object under a secret's name hides all
    that follows it, and the last characters are left out: they may be the half of a secret."""
    text = text[:-LONGEST] if len(text) > 2 * LONGEST else text[: len(text) // 2]
    parts: list[str] = []
    end = 0
    for found in _MEMBER.finditer(text):
        name, value = found[1], found[2]
        if not is_secret_name(name[1 : name.rindex('"')]):
            continue
        parts += text[end : found.start(2)], f'"{HIDDEN}"'
        end = found.end()
        if value in ("[", "{"):
            end = len(text)
            break
    return redact("".join((*parts, text[end:])))


def restored(value: Any, original: Any) -> Any:
    """`value`, with what `redacted` has hidden in it taken from `original`, at the same places."""
    if isinstance(value, str):
        return original if isinstance(original, str) and value == redact(original) != original else value
    if isinstance(value, list) and isinstance(original, list):
        return [restored(each, old) for each, old in zip(value, original, strict=False)] + value[len(original) :]
    if isinstance(value, dict) and isinstance(original, dict):
        known = {redact(key): key for key in original}
        return {
            known.get(key, key): original[known[key]]
            if each == HIDDEN and key in known
            else restored(each, original.get(known.get(key, key)))
            for key, each in value.items()
        }
    return value
