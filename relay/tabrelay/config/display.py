"""Configuration output for people: the effective configuration as TOML or JSON, with secrets redacted.

Redacts environment values, headers, client secrets, passwords in URLs, and arguments that look like tokens. References
such as `${TOKEN}` are kept. Does not read files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tabrelay.config.reader import Config
from tabrelay.config.specs import OAUTH_SECRETS
from tabrelay.config.variables import references

REDACTED: Final = "[redacted]"
_FLAG: Final = re.compile(r"-{1,2}[\w-]*(?:token|key|secret|passw|auth|credential|header|bearer)[\w-]*", re.IGNORECASE)
# Tokens with a well-known prefix, and JSON Web Tokens.
_SHAPES: Final = re.compile(r"\b(?:sk|ghp|gho|pk|tr|xox[a-z]|glpat|AKIA)[-_]?[\w-]{12,}|\beyJ[\w-]{10,}\.[\w.-]+")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def redacted(config: Config) -> dict[str, Any]:
    """The whole configuration as plain values."""
    servers = {
        name: {"enabled": False, **redacted_server(entry.raw)} if entry.spec is None else redacted_server(entry.raw)
        for name, entry in sorted(config.entries.items())
    }
    return {**config.settings, "servers": servers}


def redacted_server(raw: Mapping[str, Any]) -> dict[str, Any]:
    """One server as in its file, redacted. A reference such as ${TOKEN} is no secret, and is kept."""
    shown: dict[str, Any] = {}
    for key, value in raw.items():
        if key in ("env", "headers") and isinstance(value, dict):
            shown[key] = {name: _secret(item) for name, item in value.items()}
        elif key == "oauth" and isinstance(value, dict):
            shown[key] = {name: _secret(item) if name in OAUTH_SECRETS else item for name, item in value.items()}
        elif key == "args" and isinstance(value, list):
            shown[key] = _args(value)
        elif key == "url" and isinstance(value, str):
            shown[key] = redacted_url(value)
        else:
            shown[key] = value
    return shown


def redacted_url(url: str) -> str:
    """A URL without its user, password and query values."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    host = parts.netloc.rpartition("@")
    # No brackets here: they would be read as those of an IPv6 address.
    netloc = f"redacted@{host[2]}" if host[1] and not references(host[0]) else parts.netloc
    query = parts.query
    if query and not references(query.rpartition("=")[2]):
        query = urlencode([(name, REDACTED) for name, _ in parse_qsl(query, keep_blank_values=True)], safe="[]")
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _secret(value: object) -> str:
    return value if isinstance(value, str) and references(value) else REDACTED


def _args(args: list[Any]) -> list[str]:
    shown, is_next_secret = [], False
    for item in args:
        text = str(item)
        flag, has_value, value = text.partition("=")
        if is_next_secret and not references(text):
            text = REDACTED
        elif _FLAG.fullmatch(flag) and has_value and not references(value):
            text = f"{flag}={REDACTED}"
        is_next_secret = _FLAG.fullmatch(text) is not None
        shown.append(_SHAPES.sub(REDACTED, text))
    return shown


def as_toml(value: Mapping[str, Any]) -> str:
    """A configuration as TOML. Not a general TOML writer."""
    lines = [f"{_key(key)} = {_value(item)}" for key, item in value.items() if key != "servers"]
    for name, raw in value.get("servers", {}).items():
        lines += ["", f"[servers.{_key(name)}]", *(f"{_key(key)} = {_value(item)}" for key, item in raw.items())]
    return "\n".join(lines).strip("\n")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """A JSON string is a valid TOML string, except for DEL, which JSON need not escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)
