"""Parser for one configuration file: TOML, or JSON with comments and trailing commas.

A duplicate key is an error. Does not interpret the values: `formats` does.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tabrelay.config.mistakes import KeyPath

MAX_FILE: Final = 8 * 1024 * 1024
# The next string, or what is not JSON.
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    root: dict[str, Any]
    is_toml: bool


class DuplicateKeyError(ValueError):
    """An object contains a key twice; most parsers would silently use the last value."""


def read(path: Path, place: KeyPath) -> Document | None:
    """The file; None if it has a mistake, which is added to `place`."""
    try:
        if path.stat().st_size > MAX_FILE:
            place.wrong("is too large", f"at most {MAX_FILE // 1024 // 1024} MiB")
            return None
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        place.wrong("does not exist", "a configuration file, TOML or JSON")
        return None
    except (OSError, UnicodeDecodeError) as error:
        place.wrong(f"can't be read ({_reason(error)})", "a configuration file, TOML or JSON")
        return None
    # With another extension, the first character decides: no TOML file begins like this.
    suffix = path.suffix.lower()
    is_toml = suffix == ".toml" or (suffix not in (".json", ".jsonc") and not text.lstrip().startswith(("{", "/")))
    return _parse(text, place, is_toml)


def _parse(text: str, place: KeyPath, is_toml: bool) -> Document | None:
    try:
        root = tomllib.loads(text) if is_toml else parse_jsonc(text)
    except tomllib.TOMLDecodeError as error:
        place.wrong(f"is not TOML: {error}", "valid TOML, or JSON that begins with {")
        return None
    except DuplicateKeyError as error:
        place.wrong(str(error), "every key once")
        return None
    except (ValueError, RecursionError) as error:
        place.wrong(f"is not JSON: {error}", "valid JSON")
        return None
    if not isinstance(root, dict):
        place.wrong("is not an object", "an object with servers")
        return None
    return Document(root, is_toml)


def parse_jsonc(text: str) -> Any:
    """Raises ValueError and RecursionError, as `json.loads` does. Lines and columns in errors are those of the text."""
    return json.loads(without_trailing_commas(without_comments(text)), object_pairs_hook=_object)


def without_comments(text: str) -> str:
    """The text with blanks in place of comments."""
    return _COMMENT.sub(_blank, text)


def without_trailing_commas(text: str) -> str:
    """The text, which has no comments, with blanks in place of trailing commas."""
    return _TRAILING_COMMA.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKeyError(f'names "{key}" twice in one object')
        found[key] = value
    return found


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"
