"""Importer of page modules: finder and loader for their files, and reloads that succeed as a whole or change nothing.

A changed file runs again in a new module object, and so do all files that import it; calls that run keep the objects
they began with. The offers of the new code replace those of the old code in one step. If any file fails, modules and
offers are as before. Fetching is in `module_files`.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import CodeType, ModuleType
from typing import Any

from ..handlers.toolbox import Offer, Toolbox
from .module_files import Collected, ModuleFile, ModuleProblem


@dataclass(slots=True)
class _Executed:
    """A file that has run, and what it has offered meanwhile."""

    file: ModuleFile
    offers: list[Offer] = field(default_factory=list)


class ModuleRuntime(MetaPathFinder):
    """The files of one worker's modules, as an importer."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._files: dict[str, ModuleFile] = {}
        self._executed: dict[str, _Executed] = {}
        # The modules that pages named, in their order. Other files run when these import them.
        self._entries: dict[str, None] = {}
        # Last: nothing of the library or of a package is replaced by a file of a page.
        sys.meta_path.append(self)

    def close(self) -> None:
        """Remove all modules and their offers."""
        self.keep(())
        sys.meta_path.remove(self)

    @property
    def names(self) -> dict[str, str]:
        """The URLs of all files, by module name."""
        return {name: file.url for name, file in self._files.items()}

    def apply(self, found: Collected) -> bool:
        """Run a module and its helpers, as far as they are new or changed. Returns whether anything ran.

        Raises what the code raised; then nothing has changed."""
        stale = self._stale(found.files)
        if not stale:
            return False
        files = {**self._files, **found.files}
        for name in stale:
            self._compile(files[name])
        entries = [*(name for name in self._entries if name in stale), found.entry.name]
        before = self._files, dict(self._executed), dict(self._entries)
        modules = _take_out(stale)
        old = [self._executed.pop(name) for name in stale if name in self._executed]
        self._files, self._entries[found.entry.name] = files, None
        try:
            with self._toolbox.replacing(lambda offer: _is_of(offer, old)):
                for name in dict.fromkeys(entries):
                    importlib.import_module(name)
        except BaseException:
            for name in set(self._executed) - set(before[1]) | stale:
                sys.modules.pop(name, None)
            self._files, self._executed, self._entries = before
            _put_back(modules)
            raise
        self._drop_unused()
        return True

    def keep(self, urls: Iterable[str]) -> None:
        """Remove the modules that pages named, and their offers, but those with these URLs."""
        kept = set(urls)
        gone = [name for name in self._entries if self._files[name].url not in kept]
        for name in gone:
            del self._entries[name]
        if gone:
            self._drop_unused()

    def _stale(self, files: Mapping[str, ModuleFile]) -> set[str]:
        """The files that differ from what has run, and all that import them, directly or not."""
        stale = {
            name for name, file in files.items() if name not in self._executed or self._executed[name].file != file
        }
        importers = {name: set(run.file.imports) for name, run in self._executed.items()}
        importers |= {name: set(file.imports) for name, file in files.items()}
        while more := {name for name, imports in importers.items() if name not in stale and imports & stale}:
            stale |= more
        return stale

    def _drop_unused(self) -> None:
        """Forget the files that no module imports any more, with their offers."""
        used: set[str] = set()
        ahead = list(self._entries)
        while ahead:
            name = ahead.pop()
            if name in used or name not in self._files:
                continue
            used.add(name)
            ahead.extend(self._files[name].imports)
        unused = [name for name in self._files if name not in used]
        old = [self._executed.pop(name) for name in unused if name in self._executed]
        for name in unused:
            linecache.cache.pop(self._files[name].url, None)
            del self._files[name]
            sys.modules.pop(name, None)
        if old:
            with self._toolbox.replacing(lambda offer: _is_of(offer, old)):
                pass

    # -- importing ----------------------------------------------------------------------------------------------------

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        spec = spec_from_loader(fullname, FileLoader(file, self), origin=file.url, is_package=file.is_package)
        if spec is not None:
            spec.has_location = True  # tracebacks and `__file__` have the file's address
        return spec

    def run(self, file: ModuleFile, module: ModuleType) -> None:
        """Execute a file, and note what it offers. What the files that it imports offer is theirs."""
        # Tracebacks read the lines of the code that runs now.
        linecache.cache.pop(file.url, None)
        before = {id(offer) for offer in self._toolbox.offers()}
        executed = self._executed[file.name] = _Executed(file)
        try:
            exec(self._compile(file), module.__dict__)
        except BaseException:
            del self._executed[file.name]
            raise
        others = {id(offer) for run in self._executed.values() for offer in run.offers}
        executed.offers += [offer for offer in self._toolbox.offers() if id(offer) not in before | others]

    @staticmethod
    def _compile(file: ModuleFile) -> CodeType:
        try:
            return compile(file.text, file.url, "exec", dont_inherit=True)
        except SyntaxError as error:  # found by the compiler, not by the parser: `return` outside a function
            raise ModuleProblem(file.url, f"SyntaxError: {error.msg}", error.lineno) from None


class FileLoader(InspectLoader):
    """Loader of one version of one file."""

    def __init__(self, file: ModuleFile, runtime: ModuleRuntime) -> None:
        self._file, self._runtime = file, runtime

    def exec_module(self, module: ModuleType) -> None:
        self._runtime.run(self._file, module)

    def is_package(self, fullname: str) -> bool:
        return self._file.is_package

    def get_source(self, fullname: str) -> str:
        return self._file.text


def _is_of(offer: Offer, old: list[_Executed]) -> bool:
    """Was it offered by these files, while they were loaded or later?"""
    module = getattr(offer.function, "__module__", None)
    return any(run.file.name == module or any(offer is own for own in run.offers) for run in old)


def _take_out(names: set[str]) -> dict[str, ModuleType]:
    """Remove modules, also as attributes of their packages: `from package import name` would find the old one there."""
    taken = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    for name in taken:
        package, _, child = name.rpartition(".")
        if package in sys.modules and hasattr(sys.modules[package], child):
            delattr(sys.modules[package], child)
    return taken


def _put_back(modules: Mapping[str, ModuleType]) -> None:
    for name, module in modules.items():
        sys.modules[name] = module
        package, _, child = name.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], child, module)
