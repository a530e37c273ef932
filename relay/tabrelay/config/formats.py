"""Configuration formats of other programs: finds the servers in a file and converts them to our own keys.

| root | program |
|---|---|
| `[servers.NAME]` in TOML | our own |
| `servers: [{name, type}]` | websocket-mcp |
| `servers: {NAME: …}`, `mcp.servers` | VS Code |
| `mcpServers`, `amp.mcpServers` | Claude, Cursor, Cline, Kiro, LM Studio, Gemini, FastMCP, mcp-proxy, Amp |
| `[mcp_servers.NAME]` in TOML | Codex, Grok |
| `mcp: {NAME: …}` | opencode |

An unknown key is a mistake only in our own format: other programs' files have more keys than we read. Does not validate
values: `server_entry` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tabrelay.config.document import Document
from tabrelay.config.mistakes import KeyPath
from tabrelay.config.server_entry import KEYS, check_keys
from tabrelay.config.settings import Settings
from tabrelay.config.specs import BROWSER_OPTIONS

Raw = dict[str, Any]
# Settings that a file can't contain: `config` in a file would be circular, and servers have their own table.
NOT_IN_FILES: Final = frozenset({"config", "watch", "servers", "json", "open_browser", *BROWSER_OPTIONS})
SETTINGS: Final = frozenset(item.name for item in fields(Settings)) - NOT_IN_FILES


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server in a file, in our own keys."""

    name: str
    raw: Raw
    place: KeyPath


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a file: the program of its format, relay settings (our own format only), and its servers."""

    program: str
    settings: Raw
    servers: tuple[FoundServer, ...]


def contents(document: Document, place: KeyPath) -> Contents | None:
    """The contents; None, with the mistake added to `place`, if the format is unknown."""
    root = document.root
    servers, mcp = root.get("servers"), root.get("mcp")
    if document.is_toml and "mcp_servers" not in root:
        return _own(root, place)
    if isinstance(servers, list):
        return Contents("websocket-mcp", {}, tuple(_websocket_mcp(servers, place.at("servers"))))
    for key, program, change in ROOTS:
        if key in root:
            return Contents(program, {}, tuple(_table(root[key], place.at(key), change)))
    if isinstance(mcp, dict) and isinstance(mcp.get("servers"), dict):
        return Contents("VS Code", {}, tuple(_table(mcp["servers"], place.at("mcp").at("servers"), _editor)))
    if isinstance(mcp, dict):
        return Contents("opencode", {}, tuple(_table(mcp, place.at("mcp"), _opencode)))
    place.wrong("names no servers", "servers, mcpServers, mcp or [mcp_servers]")
    return None


def _own(root: Raw, place: KeyPath) -> Contents:
    settings = {key: value for key, value in root.items() if key != "servers"}
    for key in [key for key in settings if key not in SETTINGS]:
        expected = "it as a flag" if key in NOT_IN_FILES else "a setting of docs/reference/settings.md"
        place.at(key).wrong("is not a setting that a file can have", f"{expected}, or [servers.NAME]")
        del settings[key]
    found = []
    for item in _table(root.get("servers", {}), place.at("servers"), dict, keep_names=True):
        check_keys(item.raw, KEYS, item.place)
        found.append(item)
    return Contents("tabrelay", settings, tuple(found))


def _websocket_mcp(servers: list[Any], place: KeyPath) -> Iterator[FoundServer]:
    for index, raw in enumerate(servers):
        at = place.at(index)
        if not isinstance(raw, dict):
            at.wrong("is not a server", "an object with name and type")
        elif not isinstance(raw.get("name"), str):
            at.at("name").wrong("is missing", "a name such as notes")
        else:
            known = _only(raw, *KEYS)
            _milliseconds(raw, "timeout", known)
            if "type" not in raw:
                at.at("type").wrong("is missing", "stdio, http or websocket")
            else:
                yield FoundServer(raw["name"], known, at)


def _table(
    servers: object, place: KeyPath, change: Callable[[Raw], Raw], *, keep_names: bool = False
) -> Iterator[FoundServer]:
    if not isinstance(servers, dict):
        place.wrong("is not a table of servers", "names, each with its server")
        return
    for name, raw in servers.items():
        at = place.at(name)
        if not isinstance(raw, dict):
            at.wrong("is not a server", "a table with command or url")
            continue
        known = change(raw)
        if not keep_names and not known.keys() & {"command", "url", "type"}:
            at.wrong("has neither a command nor a url", "one of them")
            continue
        yield FoundServer(name if keep_names else _name(name), known, at)


def _name(name: str) -> str:
    """Names of other programs may contain blanks and more; ours are part of a URL."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or name


def _editor(raw: Raw) -> Raw:
    """`mcpServers` and VS Code: the same keys, in several spellings."""
    known = _only(raw, "command", "args", "env", "cwd", "url", "headers")
    kind = raw.get("type", raw.get("transport", raw.get("transportType")))
    if kind is not None:
        known["type"] = kind
    if isinstance(raw.get("httpUrl"), str):  # Gemini: `url` is the address of HTTP+SSE there
        known["url"], known["type"] = raw["httpUrl"], "http"
    elif isinstance(raw.get("serverUrl"), str) and "url" not in known:  # Windsurf
        known["url"] = raw["serverUrl"]
    if isinstance(raw.get("envFile"), str):
        known["env_file"] = raw["envFile"]
    if raw.get("requestIdFormat") == "string":
        known["request_ids"] = "string"
    return _switched(raw, known)


def _codex(raw: Raw) -> Raw:
    known = _only(raw, "command", "args", "env", "env_vars", "cwd", "url")
    headers = dict(raw["http_headers"]) if isinstance(raw.get("http_headers"), dict) else {}
    if isinstance(raw.get("env_http_headers"), dict):
        headers |= {name: f"${{{variable}}}" for name, variable in raw["env_http_headers"].items()}
    if isinstance(raw.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{{raw['bearer_token_env_var']}}}"
    if headers:
        known["headers"] = headers
    if isinstance(raw.get("tool_timeout_sec"), int | float):
        known["timeout_s"] = raw["tool_timeout_sec"]
    return _switched(raw, known)


def _opencode(raw: Raw) -> Raw:
    known = _only(raw, "type", "url", "headers", "cwd")
    command = raw.get("command")
    if isinstance(command, list) and command:
        known["command"], known["args"] = command[0], command[1:]
    elif command is not None:
        known["command"] = command
    if "environment" in raw:
        known["env"] = raw["environment"]
    return _switched(raw, known)


def _only(raw: Raw, *keys: str) -> Raw:
    return {key: raw[key] for key in keys if raw.get(key) is not None}


def _switched(raw: Raw, known: Raw) -> Raw:
    """Both ways to switch a server off."""
    if raw.get("disabled") is True or raw.get("enabled") is False:
        known["enabled"] = False
    return known


def _milliseconds(raw: Mapping[str, Any], key: str, known: Raw) -> None:
    value = raw.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        known["timeout_s"] = value / 1000


# The order matters: a file may contain the root key of one program and settings of another.
ROOTS: Final[tuple[tuple[str, str, Callable[[Raw], Raw]], ...]] = (
    ("mcpServers", "mcpServers", _editor),
    ("amp.mcpServers", "Amp", _editor),
    ("mcp_servers", "Codex", _codex),
    ("servers", "VS Code", _editor),
)
