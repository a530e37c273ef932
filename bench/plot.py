"""Figures as SVG, readable on light and dark pages and on a phone: bars with their spread, curves of growth, and lines
over time. They are as wide as a phone, because text that is scaled down with a wide figure cannot be read there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from math import log10
from textwrap import wrap

WIDTH = 390
FRAME, LEFT, BOTTOM = 150, 52, 26
RIGHT = 64  # for the value beside a bar
ROW, BAR = 46, 16
TITLE_LINE, TITLE_LENGTH = 20, 46

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.bar, .dot { fill: #3b6fd4 } .curve { stroke: #3b6fd4; stroke-width: 2; fill: none }
.thin { stroke-width: 1.2 } .dashed { stroke-dasharray: 4 3 }
.axis { stroke: #8b949e; stroke-width: 1; fill: none } .small { font-size: 12px }
.spread { stroke: #1f2328; stroke-width: 1.5; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar, .dot { fill: #6c9cf5 } .curve { stroke: #6c9cf5 } .spread { stroke: #e6edf3 }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    low: float
    high: float


def bars(title: str, rows: Sequence[Bar]) -> str:
    """One bar for each row, as long as its value; a line over it from the smallest to the largest measurement."""
    longest = max((row.high for row in rows), default=1.0) or 1.0
    scale = (WIDTH - RIGHT) / longest
    heading, top = _heading(title)
    parts = []
    for number, row in enumerate(rows):
        y = top + number * ROW + 18
        middle = y + BAR // 2
        left, right = row.low * scale, row.high * scale
        parts += [
            f'<text x="0" y="{y - 5}">{escape(row.label)}</text>',
            f'<rect class="bar" x="0" y="{y}" width="{max(row.value * scale, 1):.1f}" height="{BAR}" rx="3"/>',
            f'<path class="spread" d="M{left:.1f} {middle}H{right:.1f}M{left:.1f} {y + 4}v8M{right:.1f} {y + 4}v8"/>',
            f'<text x="{right + 8:.1f}" y="{y + 13}">{row.value:,.0f}</text>',
        ]
    return _figure(title, [*heading, *parts], top + ROW * len(rows))


def _heading(title: str) -> tuple[list[str], int]:
    """The title in lines that fit, and the place below it."""
    found = wrap(title, TITLE_LENGTH)
    texts = [
        f'<text class="title" x="0" y="{(number + 1) * TITLE_LINE}">{escape(line)}</text>'
        for number, line in enumerate(found)
    ]
    return texts, len(found) * TITLE_LINE + 12


def _figure(title: str, parts: Sequence[str], height: int) -> str:
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([start, f"<title>{escape(title)}</title><style>{STYLE}</style>", *parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class Curve:
    """How one figure grows: (count, value), in order. `unit` follows the values."""

    title: str
    points: Sequence[tuple[int, float]]
    unit: str = ""


def curves(title: str, drawn: Sequence[Curve]) -> str:
    """Small pictures below each other. The count goes by factors of ten, the value from 0 upwards: a flat line means
    no growth."""
    return _panels(title, [partial(_panel, curve) for curve in drawn])


def _panels(title: str, drawn: Sequence[Callable[[float], list[str]]]) -> str:
    each = FRAME + BOTTOM + 34
    parts, top = _heading(title)
    for number, panel in enumerate(drawn):
        parts += panel(top + 16 + number * each)
    return _figure(title, parts, top + len(drawn) * each)


def _panel(curve: Curve, top: float) -> list[str]:
    places = [log10(max(count, 1)) for count, _ in curve.points]
    widest, highest = (places[-1] - places[0]) or 1.0, max(value for _, value in curve.points) * 1.15 or 1.0
    across = WIDTH - LEFT - 40
    at = [
        (LEFT + (place - places[0]) / widest * across, top + FRAME * (1 - value / highest))
        for place, (_, value) in zip(places, curve.points, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    parts = [
        f'<text class="small" x="0" y="{top - 6}">{escape(curve.title)}</text>',
        f'<path class="axis" d="M{LEFT} {top}V{top + FRAME}H{WIDTH - 20}"/>',
        f'<text class="small" x="{LEFT - 6}" y="{top + FRAME + 4}" text-anchor="end">0</text>',
        f'<polyline class="curve" points="{line}"/>',
    ]
    for (x, y), (count, value) in zip(at, curve.points, strict=True):
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        parts += [
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>',
            f'<text class="small" x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{shown}{escape(curve.unit)}</text>',
            f'<text class="small" x="{x:.1f}" y="{top + FRAME + 16}" text-anchor="middle">{count:,}</text>',
        ]
    return parts


@dataclass(frozen=True, slots=True)
class Line:
    """One figure over time: (minute, value), in order. `start`: a dashed line marks this minute."""

    title: str
    points: Sequence[tuple[float, float]]
    start: float


def lines(title: str, drawn: Sequence[Line]) -> str:
    """Small pictures below each other; both axes begin at 0, so that a flat line means no growth."""
    return _panels(title, [partial(_line_panel, line) for line in drawn])


def _line_panel(line: Line, top: float) -> list[str]:
    latest, highest = line.points[-1][0] or 1.0, max(value for _, value in line.points) * 1.15 or 1.0
    across = WIDTH - LEFT - 40

    def place(minute: float, value: float) -> tuple[float, float]:
        return LEFT + minute / latest * across, top + FRAME * (1 - value / highest)

    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
    mark = place(line.start, 0)[0]
    parts = [
        f'<text class="small" x="0" y="{top - 6}">{escape(line.title)}</text>',
        f'<path class="axis" d="M{LEFT} {top}V{top + FRAME}H{WIDTH - 20}"/>',
        f'<path class="axis dashed" d="M{mark:.1f} {top}V{top + FRAME}"/>',
        f'<polyline class="curve thin" points="{at}"/>',
        f'<text class="small" x="{LEFT + across}" y="{top + FRAME + 16}" text-anchor="end">{latest:.0f} min</text>',
    ]
    for value in (0.0, highest / 1.15):
        y = place(0, value)[1] + 4
        parts.append(f'<text class="small" x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{value:,.0f}</text>')
    return parts
