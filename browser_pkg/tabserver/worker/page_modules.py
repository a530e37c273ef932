"""Python modules of pages: fetched by URL, imported into the worker, and loaded again when a file has changed.

A module is fetched again, with the files that it imports, whenever a page names it, and while a page develops it. Only
files that differ run again; a file with an error changes nothing. The code runs with all rights of the worker: there is
no sandbox. Imports are resolved in `module_files`, files executed in `module_runtime`; `module_watch` has the schedule.
"""

from __future__ import annotations

import asyncio
import importlib.util
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from .module_files import Collected, Fetch, FileCollector, FileGone, ModuleProblem, NotFetched
from .module_runtime import ModuleRuntime

MOST_MODULES: Final = 256
POLLS_UNTIL_GONE: Final = 4
_LONGEST_TRACEBACK: Final = 10_000  # characters


class PackageSource(Protocol):
    """Packages that modules may import, as far as the worker can get them."""

    async def refresh(self) -> None:
        """Find out which packages there are."""

    async def has(self, name: str) -> bool:
        """Does the relay have a package with this top-level import name?"""

    async def load(self, names: Iterable[str]) -> None:
        """Install the packages with these top-level import names. Raises OSError."""

    def advice(self, name: str) -> str:
        """What the user can do about a name that can't be imported."""


@dataclass(frozen=True, slots=True)
class ModuleOutcome:
    """What became of a module. `is_news`: it ran, or its problem differs from before. `is_running`: its code, or that
    of an earlier version, is in force. `is_again`: it was tried before."""

    url: str
    problem: ModuleProblem | None
    is_news: bool
    is_running: bool
    is_again: bool = False
    traceback: str = ""


@dataclass(slots=True)
class _Module:
    """A module as it was last tried. `seen`: its files with their texts, and the packages that they import. `absences`:
    polls in a row for which the server had no such file."""

    outcome: ModuleOutcome
    seen: frozenset[tuple[str, str]] = frozenset()
    missing: frozenset[str] = frozenset()
    is_running: bool = False
    absences: int = 0


class PageModules:
    """The modules of one worker."""

    def __init__(
        self,
        fetch: Fetch,
        runtime: ModuleRuntime,
        packages: PackageSource,
        report: Callable[[BaseException, str], None] = lambda error, while_doing: None,
    ) -> None:
        self._runtime, self._packages, self._report = runtime, packages, report
        self._collector = FileCollector(fetch, self._is_package, self._is_installed)
        self._modules: dict[str, _Module] = {}
        # One load at a time: a helper file may belong to several modules.
        self._lock = asyncio.Lock()

    @property
    def urls(self) -> set[str]:
        """Of all modules, also those that could not be loaded."""
        return set(self._modules)

    async def load(self, url: str) -> ModuleOutcome:
        """Load a module that a page names, or load it again if one of its files has changed."""
        if url not in self._modules and len(self._modules) >= MOST_MODULES:
            problem = ModuleProblem(url, f"At most {MOST_MODULES} files are loaded into one worker.")
            return ModuleOutcome(url, problem, is_news=True, is_running=False)
        async with self._lock:
            return await self._attempt(url, is_poll=False)

    async def poll(self, urls: Iterable[str]) -> list[ModuleOutcome]:
        """Look whether these modules have changed. Returns what is news."""
        async with self._lock:
            outcomes = [await self._attempt(url, is_poll=True) for url in urls if url in self._modules]
        return [outcome for outcome in outcomes if outcome.is_news]

    async def keep(self, urls: Iterable[str]) -> None:
        """Remove all other modules, and what they offer."""
        kept = set(urls)
        async with self._lock:
            self._modules = {url: module for url, module in self._modules.items() if url in kept}
            self._runtime.keep(kept)
            self._collector.forget(set(self._runtime.names.values()))

    async def _attempt(self, url: str, *, is_poll: bool) -> ModuleOutcome:
        known = self._modules.get(url)
        is_running = known is not None and known.is_running
        before = known.outcome.problem if known is not None else None
        seen, missing, has_run, trace = frozenset[tuple[str, str]](), frozenset[str](), False, ""
        problem: ModuleProblem | None = None
        try:
            # An import that may fail is not looked for in each poll, unless the module does not run without it.
            is_fine = is_poll and known is not None and before is None
            # A page that is loaded again may do so because a package has been added.
            may_have_come = known is not None and bool(known.missing) and not is_poll
            if before is not None or may_have_come:
                await self._packages.refresh()
            found = await self._collector.collect(
                url, self._runtime.names, known.missing if is_fine and known else missing
            )
            seen, missing = _seen(found), frozenset(found.missing)
            if known is not None and known.seen == seen and known.missing == missing:
                return self._note(url, known, seen, missing, before, trace, is_running=is_running)
            await self._packages.load(found.packages)
            has_run = self._runtime.apply(found)
            is_running = True
        except NotFetched as error:
            absences = known.absences + 1 if known is not None and isinstance(error, FileGone) else 0
            if is_poll and known is not None and absences < POLLS_UNTIL_GONE:
                outcome = self._note(url, known, known.seen, known.missing, before, trace, is_running=is_running)
                self._modules[url].absences = absences
                return outcome
            problem = error
        except ModuleProblem as error:
            problem = error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._report(error, f"{url} could not be loaded")
            problem, trace = self._describe(url, error)
        is_news = has_run or _differs(problem, before) or known is None
        return self._note(url, known, seen, missing, problem, trace, is_running=is_running, is_news=is_news)

    def _note(
        self,
        url: str,
        known: _Module | None,
        seen: frozenset[tuple[str, str]],
        missing: frozenset[str],
        problem: ModuleProblem | None,
        trace: str,
        *,
        is_running: bool,
        is_news: bool = False,
    ) -> ModuleOutcome:
        if not is_news and known is not None:
            trace = known.outcome.traceback
        outcome = ModuleOutcome(url, problem, is_news, is_running, known is not None, trace)
        self._modules[url] = _Module(outcome, seen, missing, is_running)
        return outcome

    async def _is_package(self, name: str) -> bool:
        """Is it a package of the relay, or one that is installed?"""
        return self._is_installed(name) or (name not in self._runtime.names and await self._packages.has(name))

    def _is_installed(self, name: str) -> bool:
        if name in self._runtime.names:
            return False
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
            return False

    def _describe(self, url: str, error: BaseException) -> tuple[ModuleProblem, str]:
        """The problem with the last line in a file of the page, and the traceback from the first such line on."""
        urls = {url, *self._runtime.names.values(), *self._collector.urls}
        place, line, first = url, None, error.__traceback__
        frame = error.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_filename in urls:
                first = frame if line is None else first
                place, line = frame.tb_frame.f_code.co_filename, frame.tb_lineno
            frame = frame.tb_next
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            message += f". {self._packages.advice(error.name.partition('.')[0])}"
        trace = "".join(traceback.format_exception(type(error), error, first, limit=-20))
        return ModuleProblem(place, message, line), trace[-_LONGEST_TRACEBACK:]


def _seen(found: Collected) -> frozenset[tuple[str, str]]:
    files = {(file.url, file.text) for file in found.files.values()}
    return frozenset(files | {(name, "") for name in found.packages})


def _differs(problem: ModuleProblem | None, before: ModuleProblem | None) -> bool:
    return _parts(problem) != _parts(before)


def _parts(problem: ModuleProblem | None) -> tuple[str, str, int | None] | None:
    return None if problem is None else (problem.url, problem.message, problem.line)
