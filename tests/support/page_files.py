"""A fake web server with a page's Python files, fake packages, and the decorator that the files use. It opens no
sockets."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tabserver import tool
from tabserver.handlers.toolbox import Toolbox

HERE = "http://app.test/app/"


@dataclass
class Answer:
    status: int
    text: str
    is_page: bool = False


@dataclass
class Server:
    """A web server with files; `pages`: it answers missing files with HTML."""

    files: dict[str, str] = field(default_factory=dict)
    pages: bool = False
    is_down: bool = False
    asked: list[str] = field(default_factory=list)

    async def fetch(self, url: str) -> Answer:
        self.asked.append(url.removeprefix(HERE))
        await asyncio.sleep(0)
        if self.is_down:
            raise OSError("connection refused")
        text = self.files.get(url.removeprefix(HERE))
        if text is None:
            return Answer(200, "", is_page=True) if self.pages else Answer(404, "")
        return Answer(200, text)


@dataclass
class FakePackages:
    """Packages as modules that are created when they are installed."""

    available: dict[str, str] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)
    known: set[str] | None = None

    async def refresh(self) -> None:
        self.known = set(self.available)

    async def has(self, name: str) -> bool:
        if self.known is None:
            await self.refresh()
        return name in (self.known or ())

    async def load(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.available and name not in sys.modules:
                module = type(sys)(name)
                exec(self.available[name], module.__dict__)
                sys.modules[name] = module
                self.loaded.append(name)

    def advice(self, name: str) -> str:
        return f"Run: tabrelay packages add {name}"


_current = [Toolbox()]


def use_toolbox(toolbox: Toolbox) -> None:
    """`offer` adds to this toolbox from now on."""
    _current[0] = toolbox


def offer(function: Any) -> Any:
    """Stands in for `@tool` in the files of the tests."""
    return tool(toolbox=_current[0])(function)
