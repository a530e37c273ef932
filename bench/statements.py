"""Size of the product per package: Python statements and JavaScript lines, in the tree and in a git revision.

Python counts by the nodes of its syntax tree, docstrings left out, so that layout and comments make no difference.
JavaScript counts by lines that are neither blank nor comment. Tests, benchmarks, types (`.d.ts`) and style sheets do
not count.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bench.table import table

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("relay/tabrelay", "browser_pkg/tabserver")
SUFFIXES = (".py", ".js")


def python_statements(source: str) -> int:
    nodes = list(ast.walk(ast.parse(source)))
    documented = (
        node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return sum(isinstance(node, ast.stmt) for node in nodes) - sum(
        ast.get_docstring(node) is not None for node in documented
    )


def javascript_lines(source: str) -> int:
    count, in_comment = 0, False
    for line in map(str.strip, source.splitlines()):
        in_comment = in_comment or line.startswith("/*")
        if line and not in_comment and not line.startswith("//"):
            count += 1
        in_comment = in_comment and "*/" not in line
    return count


def sources_of_tree() -> Iterator[tuple[str, str]]:
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES):
        yield path.relative_to(ROOT).as_posix(), path.read_text()


def sources_of_revision(revision: str) -> Iterator[tuple[str, str]]:
    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    for name in git("ls-tree", "-r", "--name-only", "-z", revision, *PRODUCT).split("\0"):
        if name.endswith(SUFFIXES):
            yield name, git("show", f"{revision}:{name}")


def package_of(name: str) -> str:
    """`relay/tabrelay/cli`, `browser_pkg/tabserver/js/client`: the folder, and of JavaScript one folder more."""
    parts = PurePosixPath(name).parent.parts
    return "/".join(parts[: 4 if "js" in parts else 3])


def count(sources: Iterator[tuple[str, str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, source in sources:
        counts[package_of(name)] += javascript_lines(source) if name.endswith(".js") else python_statements(source)
    return counts


def rows_of(before: Counter[str], after: Counter[str]) -> list[list[str]]:
    rows = [
        [package, f"{before[package]:,}", f"{after[package]:,}", f"{after[package] - before[package]:+,}"]
        for package in sorted(before.keys() | after.keys())
    ]
    return [*rows, ["sum", f"{before.total():,}", f"{after.total():,}", f"{after.total() - before.total():+,}"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statements", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("revision", nargs="?", default="HEAD", metavar="REV", help="compare with this (default: HEAD)")
    parser.add_argument("until", nargs="?", metavar="UNTIL", help="compare this revision, and not the tree, with REV")
    chosen = parser.parse_args()
    after = count(sources_of_revision(chosen.until) if chosen.until else sources_of_tree())
    print(
        table(
            ("package", chosen.revision, chosen.until or "tree", "difference"),
            rows_of(count(sources_of_revision(chosen.revision)), after),
        )
    )


if __name__ == "__main__":
    main()
