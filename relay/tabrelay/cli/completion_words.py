"""Words that can follow on the command line: names of servers, tools of a server, arguments of a tool.

They come from files of the state directory: the records of running relays, and the last lists of servers. No relay is
asked, so that the Tab key answers at once. A shell expands what it gets: only words of harmless characters are printed,
whatever a server calls its tools.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from tabrelay.system import private_files, relay_records

# defence: words of servers that a shell would expand
SAFE: Final = re.compile(r"[A-Za-z0-9_.:/@%+,=-]+")
WITH_TOOL: Final = ("call",)


def reply(typed: Sequence[str]) -> list[str]:
    """The last word of `typed` is the one to complete; it may be empty."""
    from tabrelay.cli.main import _parser
    from tabrelay.config.settings import ConfigError, Settings

    is_split, words = _joined(typed)
    if len(words) < 2:
        return []
    parser: Any = _parser(words[0])
    home, before, value_of = _positionals(parser, words[1:-1])
    try:
        settings = Settings.from_args({"home": home})
    except ConfigError:
        return []
    if value_of is not None:
        found: Iterable[str] = _tools(settings.home, before[:1]) if value_of == "--tool" else ()
    elif words[0] in WITH_TOOL and len(before) == 1:
        found = _tools(settings.home, before)
    elif words[0] in WITH_TOOL and len(before) > 1:
        found = _arguments(settings.home, before[0], before[1], words[-1])
    else:
        found = _servers(settings.home)
    if is_split:  # bash treats NAME=VALUE as three words, and completes the third
        found = (word.partition("=")[2] for word in found)
    return [word for word in found if SAFE.fullmatch(word)]


def _joined(typed: Sequence[str]) -> tuple[bool, list[str]]:
    """NAME=VALUE as one word, where the shell made three of it. Is the last word the value of one?"""
    words: list[str] = []
    is_after_sign = is_value = False
    for word in typed:
        is_value = bool(words) and (word == "=" or is_after_sign)
        is_after_sign = word == "="
        if is_value:
            words[-1] += word
        else:
            words.append(word)
    return is_value, words


def _positionals(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[str | None, list[str], str | None]:
    """The state directory, the words that are no flags, and the flag whose value comes next."""
    from tabrelay.cli.parsers import choices_of

    options: dict[str, argparse.Action] = {}
    for command in choices_of(parser).values():
        options |= command._option_string_actions
    found, home, waiting = [], None, None
    for word in takewhile(lambda word: word != "--", words):
        if waiting is not None:
            home = word if waiting == "--home" else home
            waiting = None
        elif word.startswith("-") and len(word) > 1:
            action = options.get(word)
            waiting = word if action is not None and action.nargs != 0 else None
        else:
            found.append(word)
    return home, found, waiting


def _servers(home: Path) -> list[str]:
    names = {name for record in relay_records.read(home) for name in record.servers}
    return sorted(names | {name for name in _rows(home) if "~" not in name})


def _tools(home: Path, servers: Sequence[str]) -> list[str]:
    return [str(tool.get("name", "")) for server in servers for tool in _listed(home, server)]


def _arguments(home: Path, server: str, tool: str, current: str) -> list[str]:
    from tabrelay.cli import tool_arguments

    for row in _listed(home, server):
        if row.get("name") == tool and isinstance(schema := row.get("inputSchema"), dict):
            return tool_arguments.words_of(schema, current)
    return []


def _listed(home: Path, server: str) -> list[dict[str, Any]]:
    """The tools of the server's last list."""
    try:
        tools = json.loads(_rows(home).get(server, "{}")).get("tools", [])
    except (ValueError, AttributeError):
        return []
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def _rows(home: Path) -> dict[str, str]:
    """The rows of the file of known servers as JSON texts: it has one line for each, and only one is needed."""
    try:
        text = private_files.read(home / "servers.json")
    except (private_files.StateError, OSError, ValueError):
        return {}
    found = {}
    for line in text.splitlines():
        name, colon, row = line.partition(":")
        if colon and name.startswith('"') and name.endswith('"'):
            found[name[1:-1]] = row.rstrip(",")
    return found
