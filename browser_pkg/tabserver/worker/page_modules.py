"""Python modules of pages: fetched by URL and imported into the worker.

Each URL is imported once per worker, whichever pages name it; a URL that failed is tried again when a page asks. The
code runs with all rights of the worker: there is no sandbox.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from ..browser.python_bridge import report
from ..browser.values import fetch_text

MODULE_TIMEOUT_S: Final = 10.0


MOST_MODULES: Final = 256


class PageModules:
    """The modules of one worker."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tabrelay-"))
        self._loads: dict[str, asyncio.Task[str | None]] = {}

    async def load(self, url: str) -> str | None:
        """Import the file behind a URL. Returns what went wrong, or None."""
        if url not in self._loads and len(self._loads) >= MOST_MODULES:
            return f"At most {MOST_MODULES} files are loaded into one worker."
        if url not in self._loads:
            self._loads[url] = asyncio.get_running_loop().create_task(self._load(url))
        problem = await self._loads[url]
        if problem is not None:
            self._loads.pop(url, None)
        return problem

    async def _load(self, url: str) -> str | None:
        try:
            source = await fetch_text(url, MODULE_TIMEOUT_S)
            self._import(url, source)
        except (Exception, SystemExit) as error:
            report(error, f"{url} could not be loaded")
            return f"{type(error).__name__}: {error}"
        return None

    def _import(self, url: str, source: str) -> None:
        # One URL always gets the same module name, so that a second try replaces the tools of the first.
        name = "page_" + re.sub(r"\W+", "_", url.partition("://")[2].partition("?")[0].removesuffix(".py"))
        path = self._folder / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
