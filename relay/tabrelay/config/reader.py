"""Configuration reader: all files, flags and environment variables of a relay as one value.

Raises one error with all mistakes. A server name may be used once. Starts nothing and watches no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tabrelay.config.document import read
from tabrelay.config.formats import Contents, FoundServer, contents
from tabrelay.config.mistakes import ConfigMistakes, KeyPath, Mistake
from tabrelay.config.server_entry import ConfiguredServer, check_path, is_generated, read_entry
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.config.specs import BROWSER_OPTIONS, BrowserSpec, Spec
from tabrelay.config.variables import Variables
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name


@dataclass(frozen=True, slots=True)
class Config:
    """Contents of the files and the names on the command line. `notes`: hints for the user that are no mistakes."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    entries: Mapping[str, ConfiguredServer] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def servers(self) -> dict[str, Spec]:
        return {name: entry.spec for name, entry in self.entries.items() if entry.spec is not None}

    @property
    def disabled(self) -> tuple[str, ...]:
        return tuple(name for name, entry in self.entries.items() if entry.spec is None)


def load(files: Iterable[str | Path], names: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Config:
    """Read all files, and all `NAME` or `NAME:/PATH`. Raises ConfigMistakes with all mistakes."""
    env = os.environ if env is None else env
    mistakes: list[Mistake] = []
    loading = _Loading(mistakes)
    for item in files:
        path = Path(item).expanduser()
        place = KeyPath(str(item), mistakes)
        document = read(path, place)
        found = contents(document, place) if document is not None else None
        if found is not None:
            loading.add_file(found, place, Variables(env, path.absolute()), path.absolute().parent)
    for name in names:
        loading.add_name(name, KeyPath("command line", mistakes).at(name))
    loading.check_paths()
    if mistakes:
        raise ConfigMistakes(mistakes)
    return Config(loading.settings, loading.entries, loading.programs, tuple(loading.notes))


class _Loading:
    """Merges files; a name may be used once."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.settings: dict[str, Any] = {}
        self.entries: dict[str, ConfiguredServer] = {}
        self.programs: dict[str, str] = {}
        self.notes: list[str] = []
        self._places: dict[str, KeyPath] = {}
        self._mistakes = mistakes

    def add_file(self, found: Contents, place: KeyPath, variables: Variables, base: Path) -> None:
        self.programs[place.file] = found.program
        for key, value in found.settings.items():
            _check_setting(key, value, place.at(key))
            self.settings[key] = value
        for server in found.servers:
            entry = read_entry(server.name, server.raw, server.place, variables, base)
            self._note(server)
            if server.name in self._places:
                self._report_duplicate(server.name, server.place)
            else:
                self._places[server.name] = server.place
                if entry is not None:
                    self.entries[server.name] = entry

    def _note(self, server: FoundServer) -> None:
        key = server.place.key.rpartition(".")[2].strip('"')
        if not server.place.key.endswith("]") and key != server.name:
            self.notes.append(f'{server.place.file}: {server.place.key} is served as "{server.name}".')
        headers = server.raw.get("headers")
        for header in headers if isinstance(headers, dict) else ():
            if is_generated(header):
                where = f"{server.place.file}: {server.place.key}.headers.{header}"
                self.notes.append(f"{where} is ignored: the relay makes it itself.")

    def add_name(self, text: str, place: KeyPath) -> None:
        """A name; or a name and the path to which its page connects, as in websocket-mcp. Such a page has no token."""
        name, has_path, path = text.partition(":")
        before = len(self._mistakes)
        try:
            check_server_name(name)
        except ServerNameError as error:
            place.wrong(str(error).rstrip("."), "NAME or NAME:/PATH")
        spec = BrowserSpec(name, check_path(path, place), frozenset({"plain"})) if has_path else BrowserSpec(name)
        if len(self._mistakes) > before:
            return
        known = self.entries.get(name)
        if known is None and name not in self._places:
            self._places[name] = place
            self.entries[name] = ConfiguredServer(name, {"type": "plain", "path": spec.path} if spec.path else {}, spec)
        elif has_path or known is None or not isinstance(known.spec, BrowserSpec):
            self._report_duplicate(name, place)

    def _report_duplicate(self, name: str, place: KeyPath) -> None:
        first = self._places[name]
        where = first.key if first.file == place.file else f"{first.file}: {first.key}"
        place.wrong(f'is a second server called "{name}", after {where}', "a name of its own")

    def check_paths(self) -> None:
        """A second address must belong to one server only."""
        taken = {f"/{name}": name for name in self.entries}
        for name, entry in self.entries.items():
            spec = entry.spec
            if isinstance(spec, BrowserSpec) and spec.path is not None and spec.path != f"/{name}":
                holder = taken.setdefault(spec.path, name)
                if holder != name:
                    self._places[name].at("path").wrong(f'{spec.path} is the address of "{holder}"', "another path")


def _check_setting(key: str, value: Any, place: KeyPath) -> None:
    try:
        Settings.check(key, value)
    except ConfigError as error:
        place.wrong(str(error).rstrip("."), "a value as docs/reference/settings.md has it")


def effective(args: Mapping[str, Any], env: Mapping[str, str] | None = None) -> tuple[Settings, Config]:
    """The relay's settings and servers: flags override the environment, which overrides files. Options of one server
    in flags and files are merged. Raises ConfigError."""
    settings = Settings.from_args(args, env)
    config = load(settings.config, settings.servers, env)
    settings = Settings.from_args(args, env, config.settings)
    browsers = [spec for spec in config.servers.values() if isinstance(spec, BrowserSpec)]
    options: dict[str, Any] = {
        option: (*getattr(settings, option), *(spec.name for spec in browsers if option in spec.options))
        for option in BROWSER_OPTIONS
        if hasattr(settings, option)
    }
    return replace(settings, servers=tuple(spec.name for spec in browsers), **options), config
