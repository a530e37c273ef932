"""Configuration file of one MCP client: reads its servers, computes a change, and applies it with a backup.

The changed text is parsed again and compared before it is written; the file is replaced atomically. The syntaxes are in
`jsonc` and `toml`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabrelay.cli.client_files import jsonc, toml
from tabrelay.cli.client_files.known import KnownClient


class FileError(Exception):
    """The file can't be read, parsed or written; the text gives advice."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one text to another; `before` is None if there is no file yet."""

    path: Path
    before: str | None
    after: str

    @property
    def is_empty(self) -> bool:
        return self.before == self.after

    def diff(self) -> str:
        name = str(self.path)
        before = [] if self.before is None else self.before.splitlines(keepends=True)
        lines = difflib.unified_diff(before, self.after.splitlines(keepends=True), name, name)
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)

    def apply(self, now: float | None = None) -> Path | None:
        """Writes the file atomically, with a backup of the old one. Returns the backup's path."""
        # The file itself, not a symbolic link to it: many users keep their files in another directory.
        path = self.path.resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            copy = None if self.before is None else _copy(path, now)
            # Checked right before writing: the client or the user may have changed the file since it was read.
            if _read(path) != self.before:
                if copy is not None:
                    copy.unlink(missing_ok=True)
                raise FileError(f"{self.path} was changed by another program just now. Nothing was written: try again.")
            _replace(path, self.after)
        except OSError as problem:
            raise FileError(f"{self.path} can't be written: {problem.strerror}.") from None
        return copy


class ConfigFile:
    def __init__(self, client: KnownClient, path: Path) -> None:
        self._client = client
        self._language: Any = toml if client.format == "toml" else jsonc
        self.path = path
        self._text = _read(path)

    @property
    def is_there(self) -> bool:
        return self._text is not None

    def servers(self) -> dict[str, Any]:
        """Every entry. Raises FileError."""
        found = self._parsed()
        for name in self._client.root:
            found = found.get(name, {}) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise FileError(f"{self.path}: {'.'.join(self._client.root)} is not what it should be. Please look at it.")
        return found

    def put(self, entries: Mapping[str, dict[str, Any]]) -> Change:
        text = self._text or ""
        for name, entry in entries.items():
            text = self._edited(self._language.put, text, (*self._client.root, name), entry)
        return self._change(text, {**self.servers(), **entries})

    def remove(self, names: Iterable[str]) -> Change:
        text, servers = self._text or "", self.servers()
        for name in names:
            text = self._edited(self._language.remove, text, (*self._client.root, name))
            servers = {other: entry for other, entry in servers.items() if other != name}
        return self._change(text, servers)

    def _edited(self, edit: Callable[..., str], *arguments: Any) -> str:
        try:
            return edit(*arguments)
        except (jsonc.JsoncError, toml.TomlError) as problem:
            raise FileError(f"{self.path}: {problem}") from None

    def _change(self, text: str, servers: dict[str, Any]) -> Change:
        """Parses the new text and checks that the servers are as intended and nothing else has changed."""
        after = self._with(text)
        if after.servers() != servers or after._rest() != self._rest():
            raise FileError(f"{self.path} is written in a way that can't be changed safely. Please change it by hand.")
        return Change(self.path, self._text, text)

    def _with(self, text: str) -> ConfigFile:
        other = ConfigFile.__new__(ConfigFile)
        other._client, other._language, other.path, other._text = self._client, self._language, self.path, text
        return other

    def _rest(self) -> Any:
        """Everything except the servers."""
        return {name: one for name, one in self._parsed().items() if name != self._client.root[0]}

    def _parsed(self) -> Any:
        try:
            return self._parse(self._text or "")
        except (jsonc.JsoncError, toml.TomlError) as problem:
            raise FileError(f"{self.path} is not {self._client.format.upper()}: {problem}") from None

    def _parse(self, text: str) -> Any:
        if not text.strip():
            return {}
        value = self._language.parse(text)
        if not isinstance(value, dict):
            raise jsonc.JsoncError("it is not an object")
        return value


def _read(path: Path) -> str | None:
    """None if there is no file."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise FileError(f"{path} can't be read: {problem}.") from None


def _copy(path: Path, now: float | None) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    for number in range(1000):
        copy = path.with_name(f"{path.name}.tabrelay-{stamp}{f'-{number}' if number else ''}.bak")
        with contextlib.suppress(FileExistsError):
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path.stat().st_mode & 0o777)
            with os.fdopen(handle, "wb") as file:
                file.write(path.read_bytes())
            return copy
    raise OSError(17, "too many copies are there already")


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        Path(name).chmod(mode)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
