"""Source files of page modules: the imports of a file, found by AST, and the helper files beside it, fetched by URL.

A module and the files that it imports are fetched before any of them runs, because `import` is synchronous. A file is
resolved like a script's import: from the folder of the module that the page named. Imports of the standard library and
of packages are not fetched. Nothing is executed here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

MOST_FILES: Final = 256
MAX_FILE: Final = 4 * 1024 * 1024  # characters

# Never files of a page, whatever is beside the module.
RESERVED: Final = sys.stdlib_module_names | {
    *("__main__", "js", "pyodide", "pyodide_js", "_pyodide", "_pyodide_core", "pyscript", "tabserver"),
}
_OK: Final = 200
_MISSING: Final = (404, 410)


class Fetched(Protocol):
    """The answer to a request for a file."""

    @property
    def status(self) -> int: ...
    @property
    def is_page(self) -> bool:
        """HTML: what many web servers send for an address that they do not have."""

    @property
    def text(self) -> str: ...


# Raises OSError if there is no answer.
Fetch = Callable[[str], Awaitable[Fetched]]


class ModuleProblem(Exception):
    """Why a module could not be loaded. `url` is the file with the problem, `line` its line, if there is one."""

    def __init__(self, url: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.url, self.message, self.line = url, message, line

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.message} ({file_name(self.url)}, line {self.line})"


class NotFetched(ModuleProblem):
    """A file could not be fetched now; an earlier version of it is not affected."""


class FileGone(NotFetched):
    """The server has no such file now. Editors remove a file for a moment when they save it."""


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """One source file. `root`: the folder from which its absolute imports are resolved. `imports`: dotted names, each
    with its parents before it; those in `guesses` may also be attributes of their package."""

    url: str
    root: str
    name: str
    is_package: bool
    text: str = field(repr=False)
    imports: tuple[str, ...]
    guesses: frozenset[str]


@dataclass(slots=True)
class Collected:
    """A module with the helper files that it imports, by name. `missing`: imported names without a file or package."""

    entry: ModuleFile
    files: dict[str, ModuleFile] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)


class FileCollector:
    """Collects a module and its helpers."""

    def __init__(
        self, fetch: Fetch, is_package: Callable[[str], Awaitable[bool]], is_installed: Callable[[str], bool]
    ) -> None:
        """`is_package`: can a top-level name be imported from an installed package, or from one of the relay?"""
        self._fetch = fetch
        self._is_package, self._is_installed = is_package, is_installed
        self._parsed: dict[str, ModuleFile] = {}

    async def collect(
        self, url: str, names: Mapping[str, str], known_missing: frozenset[str] = frozenset()
    ) -> Collected:
        """`names`: the files that have a name already, by name. `known_missing`: top-level names without a file, which
        are not asked for again."""
        text = await self._fetch_entry(url)
        entry = self._parse(url, urljoin(url, "."), self._entry_name(url, names), False, text)
        found = Collected(entry, {entry.name: entry})
        ahead = [entry]
        while ahead:
            file = ahead.pop()
            for name in file.imports:
                if name in found.files or name.partition(".")[0] in found.missing:
                    continue
                helper = await self._resolve(name, file, found, known_missing)
                if helper is not None:
                    taken = names.get(name, helper.url)
                    if taken != helper.url:
                        text = f'"{name}" is already the file {taken}: give one of the two another name'
                        raise ModuleProblem(file.url, text)
                    found.files[name] = helper
                    ahead.append(helper)
                    if len(found.files) > MOST_FILES:
                        raise ModuleProblem(url, f"imports more than {MOST_FILES} files")
        return found

    def _entry_name(self, url: str, names: Mapping[str, str]) -> str:
        """The name of the module that a page named by its URL: that of the file, unless another module has it."""
        stem = file_name(url).removesuffix(".py")
        is_free = stem not in RESERVED and names.get(stem, url) == url and not self._is_installed(stem)
        if stem.isidentifier() and is_free:
            return stem
        return "page_" + re.sub(r"\W+", "_", url.partition("://")[2].partition("?")[0].removesuffix(".py"))

    @property
    def urls(self) -> set[str]:
        """The files that were read."""
        return set(self._parsed)

    def forget(self, kept: set[str]) -> None:
        """Drop what is cached of all files but these."""
        self._parsed = {url: file for url, file in self._parsed.items() if url in kept}

    async def _resolve(
        self, name: str, file: ModuleFile, found: Collected, known_missing: frozenset[str]
    ) -> ModuleFile | None:
        top, _, rest = name.partition(".")
        if top in RESERVED or not file.root.startswith("http"):
            return None
        if top not in found.files and await self._is_package(top):
            found.packages.add(top)
            return None
        if rest:
            parent = found.files.get(name.rpartition(".")[0])
            if parent is None or not parent.is_package:
                return None
        elif top in known_missing:
            found.missing.add(top)
            return None
        path = name.replace(".", "/")
        for candidate, is_package in ((f"{path}.py", False), (f"{path}/__init__.py", True)):
            url = urljoin(file.root, candidate)
            text = await self._fetch_helper(url)
            if text is not None:
                return self._parse(url, file.root, name, is_package, text)
        if not rest:
            found.missing.add(top)
        return None

    async def _fetch_entry(self, url: str) -> str:
        fetched = await self._get(url)
        if fetched.status in _MISSING:
            raise FileGone(url, f"the server answers {fetched.status}: is there such a file?")
        if fetched.status != _OK:
            raise NotFetched(url, f"the server answers {fetched.status}")
        if fetched.is_page:
            raise FileGone(url, "the server answers with a web page (HTML) instead of Python: is there such a file?")
        return _checked(url, fetched.text)

    async def _fetch_helper(self, url: str) -> str | None:
        """None if there is no such file."""
        fetched = await self._get(url)
        if fetched.status in _MISSING or fetched.is_page:
            return None
        if fetched.status != _OK:
            raise NotFetched(url, f"the server answers {fetched.status}")
        return _checked(url, fetched.text)

    async def _get(self, url: str) -> Fetched:
        try:
            return await self._fetch(url)
        except OSError as error:
            raise NotFetched(url, f"could not be fetched: {error}") from None

    def _parse(self, url: str, root: str, name: str, is_package: bool, text: str) -> ModuleFile:
        known = self._parsed.get(url)
        if known is not None and (known.text, known.name, known.root) == (text, name, root):
            return known
        try:
            tree = ast.parse(text, url)
        except (SyntaxError, ValueError) as error:  # ValueError: the text has a null character
            line = getattr(error, "lineno", None)
            raise ModuleProblem(url, f"{type(error).__name__}: {getattr(error, 'msg', error)}", line) from None
        sure, guesses = find_imports(tree, name if is_package else name.rpartition(".")[0])
        file = ModuleFile(
            url, root, name, is_package, text, tuple(sorted({*sure, *guesses})), frozenset(guesses - sure)
        )
        self._parsed[url] = file
        return file


def find_imports(tree: ast.AST, package: str) -> tuple[set[str], set[str]]:
    """The dotted names that code imports, with their parents; and names that may be modules or attributes. `package`:
    the package that relative imports start from, or empty."""
    sure: set[str] = set()
    guesses: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                sure.update(_with_parents(alias.name))
        elif isinstance(node, ast.ImportFrom) and (base := _base(node, package)):
            sure.update(_with_parents(base))
            guesses.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    return sure, guesses


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`, which never run."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and getattr(node.test, "attr", getattr(node.test, "id", "")) == "TYPE_CHECKING":
            children = list(node.orelse)
        ahead.extend(children)


def _base(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    for _ in range(node.level - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{node.module}" if package and node.module else package


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def file_name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2] or url


def _checked(url: str, text: str) -> str:
    if len(text) > MAX_FILE:
        raise ModuleProblem(url, f"has more than {MAX_FILE:,} characters")
    return text
