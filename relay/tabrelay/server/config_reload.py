"""Reload of the configuration files while the relay runs: on SIGHUP, or when a file changes (`--watch`).

A file with mistakes changes nothing, and every mistake is logged. Settings that are read once are reported and not
applied. The files are parsed by `config.reader`; the application applies the servers that they name.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from tabrelay.config.reader import Config
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.config.specs import Spec

log = logging.getLogger(__name__)

POLL_S: Final = 1.0

Load = Callable[[], tuple[Settings, Config]]
Change = Callable[[Sequence[Spec]], Awaitable[None]]


class ConfigReload:
    """One per relay that has configuration files."""

    def __init__(self, settings: Settings, load: Load, change: Change) -> None:
        """`load` reads all files again, or raises a ConfigError; `change` applies their servers."""
        self._settings = settings
        self._load = load
        self._change = change
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start on the running event loop."""
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._spawn, self.reload)
        if self._settings.watch:
            self._spawn(self._watch)

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await work()

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        seen = self._file_states()
        while True:
            await asyncio.sleep(POLL_S)
            now = self._file_states()
            if now != seen:
                seen = now
                await self.reload()

    def _file_states(self) -> list[tuple[int, int, int] | None]:
        """Time, size and inode of each file. A file that is missing for a moment is being replaced by an editor."""
        found: list[tuple[int, int, int] | None] = []
        for file in self._settings.config:
            try:
                stat = Path(file).expanduser().stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return found

    async def reload(self) -> None:
        async with self._lock:
            try:
                settings, config = self._load()
            except ConfigError as problem:
                for line in str(problem).splitlines():
                    log.error("The configuration was not applied: %s", line)
                return
            for name in self._changed_settings(settings):
                log.warning("%s was changed in the configuration: restart the relay to apply it.", name)
            await self._change(tuple(config.servers.values()))
            log.warning("The configuration was reloaded: %d servers.", len(config.servers))

    def _changed_settings(self, settings: Settings) -> list[str]:
        """Settings that changed but are read only once: all but the names of servers and the port."""
        names = [item.name for item in fields(Settings) if item.name not in ("servers", "port")]
        return [name for name in names if getattr(settings, name) != getattr(self._settings, name)]
