"""Verdict, table and plot of a soak test, from the file of samples that `bench.soak` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.plot import Line, lines
from bench.soak_load import WRONG
from bench.table import table

MB: Final = 1e6
MOST_PER_HOUR: Final = 1.0  # MB
JUDGED_MIN: Final = 20.0
VIOLATIONS: Final = (*WRONG, "CALL RAN TWICE", "EXCEPTION IN A RELAY'S LOG", "exception in the page")
FIGURES: Final = {
    "rss": ("relay: resident memory, MB", MB),
    "uss": ("relay: unique memory, MB", MB),
    "fds": ("relay: open descriptors", 1.0),
    "tasks": ("relay: asyncio tasks", 1.0),
    "workers_rss": ("20 CPython workers: resident memory, MB", MB),
}


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """The median slope between all pairs of points, per unit of time: single outliers do not move it."""
    pairs = combinations(zip(times, values, strict=True), 2)
    slopes = [(later - earlier) / (end - start) for (start, earlier), (end, later) in pairs if end > start]
    return median(slopes) if slopes else 0.0


def report(file: Path, plot: Path) -> int:
    """Prints the results; returns 1 if there is a violation."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    about, samples = rows[0], [row for row in rows if "at_s" in row]
    result: dict[str, Any] | None = rows[-1].get("result")
    print("\n".join(about["machine"]))
    if not samples or result is None:
        print(f"The run did not end; {len(samples)} samples were taken.")
        return 1
    start, end = result["measured"]
    minutes = (end - start) / 60
    kept = [row for row in samples if start <= row["at_s"] <= end]
    print(f"{about['plan']}\n\nmeasured: minute {start / 60:.1f} to {end / 60:.1f}, {len(kept)} samples\n")
    slopes, cells = {}, []
    for name, (label, unit) in FIGURES.items():
        values = [row[name] / unit for row in kept]
        slopes[name] = theil_sen([row["at_s"] / 3600 for row in kept], values)
        cells.append([label, f"{values[0]:,.1f}", f"{values[-1]:,.1f}", f"{max(values):,.1f}", f"{slopes[name]:+,.2f}"])
    print(table(["", "first", "last", "largest", "per hour"], cells))
    first, last = result["rests"]
    at_rest = [[name, str(first[name]), str(last[name])] for name in ("fds", "tasks", "worker_tasks")]
    print("\n" + table(["at rest", "after the warm-up", "at the end"], at_rest))
    print(f"\nopen at rest: {first['open']}, then {last['open']}")
    outcomes = result["outcomes"]
    print("\n" + ", ".join(f"{count:,} {name}" for name, count in sorted(outcomes.items()) if count) + "\n")
    found = [f"{outcomes[name]:,} × {name}" for name in VIOLATIONS if outcomes.get(name)]
    found += [
        f"{name} at rest: {first[name]}, then {last[name]}" for name in ("fds", "tasks") if first[name] != last[name]
    ]
    grows = [name for name in ("rss", "uss") if slopes[name] >= MOST_PER_HOUR]
    if minutes >= JUDGED_MIN:
        found += [f"{FIGURES[name][0]}: {slopes[name]:+.2f} per hour" for name in grows]
    else:
        print(f"The slope is not judged: {minutes:.0f} minutes are too short for it.")
    draw(plot, samples, about["plan"], start, slopes)
    print("\n".join(f"VIOLATION: {one}" for one in found) or "No violations.")
    return 1 if found else 0


def draw(
    plot: Path, samples: Sequence[dict[str, Any]], plan: dict[str, Any], start: float, slopes: dict[str, float]
) -> None:
    panels = []
    for name, (label, unit) in FIGURES.items():
        slope = f", {slopes[name]:+.2f} per hour" if unit == MB else ""
        panels.append(Line(label + slope, [(row["at_s"] / 60, row[name] / unit) for row in samples], start / 60))
    workers = f"{plan['workers']} CPython workers" + (" and Chromium" if plan["has_chromium"] else "")
    title = f"{plan['minutes']:g} minutes with {workers}; slopes from the dashed line on"
    plot.parent.mkdir(parents=True, exist_ok=True)
    plot.write_text(lines(title, panels))
