"""Modules of all attached pages: which pages name which files, which of them develop, and what pages receive.

Several tabs that name the same file share one module and one poller. Files that no page names any more are removed
while a page that develops is attached; other pages may rely on them until the worker ends. Loading is in
`page_modules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .module_watch import ModuleWatch
from .page_modules import ModuleOutcome, PageModules

POLLS_UNTIL_REMOVED: Final = 4

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
        self._unnamed: dict[str, int] = {}  # polls in a row for which no page named the file
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
            await self._remove_unnamed()
        except Exception as error:  # a fault here must not end the polling
            self._report(error, "the files of a page could not be looked at")
            return False
        for outcome in news:
            self._tell(outcome, self._broadcast)
        return bool(news)

    async def _remove_unnamed(self) -> None:
        """A page may leave after its successor has come. Files that no page names are kept for a moment: a page that is
        loaded again names them again."""
        named = {url for each in self._named.values() for url in each.urls}
        self._unnamed = {url: self._unnamed.get(url, 0) + 1 for url in self._modules.urls - named}
        over = {url for url, polls in self._unnamed.items() if polls >= POLLS_UNTIL_REMOVED}
        if over:
            await self._modules.keep(self._modules.urls - over)

    def _tell(self, outcome: ModuleOutcome, send: Send) -> None:
        """A problem goes to the page that asks, also if it is known; a module that ran, to all."""
        problem = outcome.problem
        if problem is not None:
            message = {"t": "module_failed", "url": outcome.url, "message": str(problem), "file": problem.url}
            more = {"line": problem.line, "kept": outcome.is_running, "traceback": outcome.traceback}
            send(message | {key: value for key, value in more.items() if value not in (None, "")})
        elif outcome.is_news:
            self._broadcast({"t": "module_loaded", "url": outcome.url, "again": outcome.is_again})
