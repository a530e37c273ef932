"""Expansion of `${VAR}` in configuration strings, with values of the environment.

Understands `${VAR}`, `${VAR:-default}`, `${env:VAR}` (VS Code, Cursor), `{env:VAR}` (opencode), and the folders that
editors name. `$${` is a literal `${`. A variable that is not set is a mistake, never an empty string. Does not
expand shell syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tabrelay.config.mistakes import KeyPath

_REFERENCE: Final = re.compile(r"(?P<escaped>\$\$\{)|\$\{(?P<name>[^{}]*)\}|(?<![$\w])\{env:(?P<bare>\w+)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Variables:
    """The variables that strings of one file may refer to."""

    def __init__(self, env: Mapping[str, str], file: Path) -> None:
        self._env = env
        folder = file.parent
        # Editors keep their file in a subfolder of the project.
        project = folder.parent if folder.name in (".vscode", ".cursor", ".codex", ".claude", ".kiro") else folder
        self._folders = {"workspaceFolder": str(project), "userHome": str(Path.home()), "cwd": str(Path.cwd())}

    def expand(self, text: str, place: KeyPath) -> str:
        def value(match: re.Match[str]) -> str:
            if match["escaped"]:
                return "${"
            return self._value(match["bare"] or match["name"], place)

        return _REFERENCE.sub(value, text)

    def _value(self, reference: str, place: KeyPath) -> str:
        if reference in self._folders:
            return self._folders[reference]
        if reference.startswith("input:"):
            place.wrong(f"asks for the input {reference[6:]!r}", "a value, or ${VAR} of the environment")
            return ""
        name, has_default, default = reference.removeprefix("env:").partition(":-")
        if not _NAME.fullmatch(name):
            place.wrong(f"has ${{{reference}}}", "${VAR}, ${VAR:-default} or ${env:VAR}; write $${ for a literal ${")
            return ""
        found = self._env.get(name)
        if found:
            return found
        if has_default:
            return default
        if found is None:
            place.wrong(f"names the variable {name}, which is not set", "one of the environment, or ${VAR:-default}")
        return ""


def references(text: str) -> bool:
    """Does this string consist of references only, so that it is no secret itself?"""
    return bool(_REFERENCE.search(text)) and not re.sub(r"(?i)^bearer\s+", "", _REFERENCE.sub("", text)).strip()
