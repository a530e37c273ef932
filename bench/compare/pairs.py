"""Paired measurements of two trees: rounds in alternating order, the median ratio, and an interval for it.

A ratio is how many times as fast the second tree is: above 1 it is faster. It is taken within a round, so that other
load of the machine affects both. The interval holds the true median with at least 95 %, whatever the distribution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb
from statistics import median

from bench.table import table

FAST, REGULAR = "fast", "regular"


@dataclass(frozen=True, slots=True)
class Sample:
    """`cost`: microseconds of a call, of processor time where that is known. `rate`: calls per second, if measured."""

    cost: float
    rate: float | None = None


@dataclass(slots=True)
class Pairs:
    """All rounds of one measurement."""

    name: str
    kind: str
    samples: list[tuple[Sample, Sample]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [before.cost / after.cost for before, after in self.samples]

    @property
    def rate_ratios(self) -> list[float]:
        return [after.rate / before.rate for before, after in self.samples if before.rate and after.rate]


def take_turns(pairs: Sequence[Pairs], rounds: int, measure: Callable[[int, Pairs], Sample], repeats: int = 1) -> None:
    """`measure` gets 0 for the tree before and 1 for the one after. `repeats`: a round has this many turns of each, of
    which the cheapest counts. It is the cost of the code without disturbance."""
    for round in range(rounds):
        for each in pairs:
            got: tuple[list[Sample], list[Sample]] = ([], [])
            for turn in range(repeats):
                # The order alternates, so that a machine whose speed changes favours neither.
                for which in (0, 1) if (round + turn) % 2 == 0 else (1, 0):
                    got[which].append(measure(which, each))
            before, after = (min(samples, key=lambda sample: sample.cost) for samples in got)
            each.samples.append((before, after))
        print(f"round {round + 1} of {rounds}", file=sys.stderr, flush=True)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Order statistics around the median; the whole spread if there are few values."""
    ordered, count = sorted(values), len(values)
    outside, tail = 0, 0.0
    while True:
        tail += comb(count, outside) / 2**count
        if tail > 0.025:
            break
        outside += 1
    first = max(outside - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def shown(values: Sequence[float]) -> str:
    low, high = interval(values)
    return f"{median(values):.2f} ({low:.2f}–{high:.2f})"


def report(title: str, pairs: Sequence[Pairs]) -> str:
    rows = []
    for each in pairs:
        before, after = (median(sample[which].cost for sample in each.samples) for which in (0, 1))
        rates = shown(each.rate_ratios) if each.rate_ratios else ""
        rows.append([f"{each.kind}: {each.name}", f"{before:,.1f}", f"{after:,.1f}", shown(each.ratios), rates])
    return table([title, "µs before", "µs after", "× as fast", "× calls/s"], rows)
