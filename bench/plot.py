"""Figures as a picture: horizontal bars with their spread, as SVG that reads on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABELS, RIGHT = 760, 240, 80
ROW, TOP = 30, 44

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px }
.bar { fill: #3b6fd4 } .spread { stroke: #1f2328; stroke-width: 1.5; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #6c9cf5 } .spread { stroke: #e6edf3 }
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
    scale = (WIDTH - LABELS - RIGHT) / longest
    height = TOP + ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="0" y="20">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        y = TOP + number * ROW
        middle = y + 9
        left, right = LABELS + row.low * scale, LABELS + row.high * scale
        parts += [
            f'<text x="{LABELS - 10}" y="{y + 14}" text-anchor="end">{escape(row.label)}</text>',
            f'<rect class="bar" x="{LABELS}" y="{y}" width="{max(row.value * scale, 1):.1f}" height="18" rx="3"/>',
            f'<path class="spread" d="M{left:.1f} {middle}H{right:.1f}M{left:.1f} {y + 5}v8M{right:.1f} {y + 5}v8"/>',
            f'<text x="{right + 8:.1f}" y="{y + 14}">{row.value:,.0f}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
