"""Report of the call paths as Markdown: docs/project/call-path.md, and what `python -m tests.call_path` prints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from tests.call_path.limits import goal
from tests.call_path.paths import Measured
from tests.call_path.tracer import Step
from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "project" / "call-path.md"
INTRODUCTION: Final = """# Call path

The product files and functions that one `tools/call` enters, measured in Chromium. Python is followed with
`sys.setprofile` in the relay and in the worker's Pyodide, so its functions are in order. JavaScript is measured by
precise coverage, which has no order; its files are sorted. Timers are held meanwhile, and all caches are full. A
regular call has a chunked body and asks for progress; a fast one is small and plain.

The way in ends when the tool function starts. "Entries" are calls from another product file. Returns, calls of the
event loop and coroutines that continue are not counted. The wire runs at both ends of the link: its files count once,
and its entries are added up.

`python -m tests.call_path` prints this page, `--short` its numbers only. `TABRELAY_WRITE_DOCS=1 python -m pytest
tests/call_path` writes it. A test compares the files of each path.
"""
_FILE: Final = re.compile(r"^(tab(?:relay|server)/\S+)", re.MULTILINE)


def page(results: Sequence[Measured]) -> str:
    return "\n".join([INTRODUCTION, _summary(results), *map(_section, results)])


def short(results: Sequence[Measured]) -> str:
    """Without the steps."""
    return "\n".join([_summary(results), *("\n".join(_opening(result)) + "\n" for result in results)])


def files_of(text: str) -> dict[str, set[str]]:
    """The files of each path, as a page lists them."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {section.partition("\n")[0]: set(_FILE.findall(section)) for section in sections}


def _summary(results: Sequence[Measured]) -> str:
    rows = [
        "| path | files | goal | functions | entries of one file: in | out | goal |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        files, most, _ = goal(result.path)
        rows.append(
            f"| {result.path.name} | {len(result.files)} | {files} | {result.functions}"
            f" | {result.most_in} | {result.most_out} | {most} |"
        )
    return "\n".join(rows) + "\n"


def _opening(result: Measured) -> list[str]:
    parts = [f"## {result.path.name}", "", f"{len(result.files)} files, {result.functions} functions."]
    for word, counts in (("in", result.entries_in), ("out", result.entries_out)):
        often = {file: count for file, count in counts.items() if count > goal(result.path).entries_in}
        if often:
            listed = ", ".join(f"`{file}` {count}" for file, count in sorted(often.items(), key=lambda pair: -pair[1]))
            parts.append(f"Entered most often on the way {word}: {listed}.")
    return parts


def _section(result: Measured) -> str:
    trace, parts = result.trace, _opening(result)
    blocks = [
        ("Relay, way in", _steps(trace.relay, "in", result.files)),
        ("Worker, Python, way in", _steps(trace.worker, "in", result.files)),
        ("Worker, JavaScript, both ways", _functions(trace.worker_js)),
        ("Page, JavaScript", _functions(trace.page_js)),
        ("Worker, Python, way out", _steps(trace.worker, "out", result.files)),
        ("Relay, way out", _steps(trace.relay, "out", result.files)),
    ]
    for title, lines in blocks:
        if lines:
            parts += ["", f"{title}:", "", "```", *lines, "```"]
    return "\n".join(parts) + "\n"


def _steps(steps: Iterable[Step], phase: str, files: Sequence[str]) -> list[str]:
    """Each visit of a file, one per line."""
    found = [(file, function) for at, _, file, function in steps if at == phase and file in files]
    return [
        f"{file}  {_counted(name for _, name in group)}" for file, group in groupby(found, key=lambda step: step[0])
    ]


def _functions(calls: Counter[tuple[str, str]]) -> list[str]:
    found = [(file, name) for (file, name), count in sorted(calls.items()) for _ in range(count)]
    return [
        f"{file}  {_counted(name for _, name in group)}" for file, group in groupby(found, key=lambda call: call[0])
    ]


def _counted(names: Iterable[str]) -> str:
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in Counter(names).items())
