"""Limits of the call path: the goals, and the present limits until they are reached.

A path that has become shorter gets a lower limit in `PRESENT`. A limit is raised only in a commit that states why. When
`PRESENT` is at the goals, it is removed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.call_path.paths import CallPath
from tests.call_path.stage import PAGE_TOOL, WORKER_TOOL


class Limit(NamedTuple):
    """`files`: distinct files of relay, wire, worker and page. `entries_in`, `entries_out`: how often one Python file
    is entered from other product files, before the tool starts and afterwards."""

    files: int
    entries_in: int
    entries_out: int


REGULAR_GOAL: Final = Limit(files=40, entries_in=3, entries_out=3)
FAST_GOAL: Final = Limit(files=30, entries_in=3, entries_out=3)

PRESENT: Final = {
    CallPath(is_modern=True, is_fast=False, tool=PAGE_TOOL): Limit(81, 5, 3),
    CallPath(is_modern=True, is_fast=False, tool=WORKER_TOOL): Limit(76, 4, 3),
    CallPath(is_modern=False, is_fast=False, tool=PAGE_TOOL): Limit(84, 5, 3),
    CallPath(is_modern=False, is_fast=False, tool=WORKER_TOOL): Limit(77, 4, 3),
    CallPath(is_modern=True, is_fast=True, tool=PAGE_TOOL): Limit(44, 3, 3),
    CallPath(is_modern=True, is_fast=True, tool=WORKER_TOOL): Limit(44, 3, 3),
    CallPath(is_modern=False, is_fast=True, tool=PAGE_TOOL): Limit(73, 5, 3),
    CallPath(is_modern=False, is_fast=True, tool=WORKER_TOOL): Limit(67, 4, 3),
}


def goal(path: CallPath) -> Limit:
    return FAST_GOAL if path.is_fast else REGULAR_GOAL
