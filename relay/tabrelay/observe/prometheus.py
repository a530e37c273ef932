"""Prometheus exposition format: metric families, samples and their text.

Writes version 0.0.4 of the format, which every Prometheus and OpenMetrics scraper reads. Pure. Counts nothing:
`call_metrics`, `process_metrics` and `server.gauges` do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value. `suffix`: appended to the family's name, for the parts of a histogram."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All samples of one metric name."""

    name: str
    kind: Kind
    help: str
    samples: tuple[MetricSample, ...]


def gauge(name: str, help: str, *samples: MetricSample) -> MetricFamily:
    return MetricFamily(name, "gauge", help, samples)


def counter(name: str, help: str, *samples: MetricSample) -> MetricFamily:
    return MetricFamily(name, "counter", help, samples)


def histogram(bounds: Iterable[float], counts: Iterable[int], total: float, labels: Labels) -> list[MetricSample]:
    """`counts`: observations in each bucket; the last bucket is above all bounds."""
    samples, so_far = [], 0
    for bound, count in zip([*map(_number, bounds), "+Inf"], counts, strict=True):
        so_far += count
        samples.append(MetricSample(so_far, (*labels, ("le", bound)), "_bucket"))
    return [*samples, MetricSample(total, labels, "_sum"), MetricSample(so_far, labels, "_count")]


def render(families: Iterable[MetricFamily]) -> str:
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += [f"{family.name}{each.suffix}{_braced(each.labels)} {_number(each.value)}" for each in family.samples]
    return "\n".join([*lines, ""])


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
