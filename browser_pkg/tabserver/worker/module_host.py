"""Modules of all attached pages: which pages name which files, which of them develop, and what pages receive.

Several tabs that name the same file share one module and one poller. Files that no page names any more are removed when
a page that develops attaches; other pages may rely on them until the worker ends. Loading is in `page_modules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .module_watch import ModuleWatch
from .page_modules import ModuleOutcome, PageModules

Send = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class _Named:
    """The files that a page names, and whether it develops them."""

    urls: tuple[str, ...]
    is_dev: bool


class ModuleHost:
    """`broadcast` sends a message to all pages; `is_visible`: is any of them visible?"""

    def __init__(
        self,
        modules: PageModules,
        *,
        broadcast: Send,
        is_visible: Callable[[], bool],
        now_s: Callable[[], float],
        report: Callable[[BaseException, str], None],
    ) -> None:
        self._modules, self._broadcast, self._report = modules, broadcast, report
        self._named: dict[object, _Named] = {}
        self._watch = ModuleWatch(
            self._poll, now_s=now_s, is_wanted=lambda: bool(self._watched()), is_visible=is_visible
        )

    async def attach(self, page: object, urls: list[str], send: Send, *, is_dev: bool) -> None:
        """Load the files that a page names. `send` sends to this page, which gets the problems of all its files."""
        self._named[page] = _Named(tuple(urls), is_dev)
        for url in urls:
            self._tell(await self._modules.load(url), send)
        if is_dev:
            await self._modules.keep({url for named in self._named.values() for url in named.urls})
            self._watch.used()

    def detach(self, page: object) -> None:
        self._named.pop(page, None)

    def turned_to(self) -> None:
        """The user turned to a tab: files may have changed while all tabs were hidden."""
        if self._watched():
            self._watch.used()

    def _watched(self) -> list[str]:
        return list(dict.fromkeys(url for named in self._named.values() if named.is_dev for url in named.urls))

    async def _poll(self) -> bool:
        try:
            news = await self._modules.poll(self._watched())
        except Exception as error:  # a fault here must not end the polling
            self._report(error, "the files of a page could not be looked at")
            return False
        for outcome in news:
            self._tell(outcome, self._broadcast)
        return bool(news)

    def _tell(self, outcome: ModuleOutcome, send: Send) -> None:
        """A problem goes to the page that asks, also if it is known; a module that ran, to all."""
        problem = outcome.problem
        if problem is not None:
            message = {"t": "module_failed", "url": outcome.url, "message": str(problem), "file": problem.url}
            more = {"line": problem.line, "kept": outcome.is_running, "traceback": outcome.traceback}
            send(message | {key: value for key, value in more.items() if value not in (None, "")})
        elif outcome.is_news:
            self._broadcast({"t": "module_loaded", "url": outcome.url, "again": outcome.is_again})
