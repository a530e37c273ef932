"""Diagrams as SVG: the part of Mermaid's language that the documentation uses, drawn when the site is built.

Sequence diagrams with participants, messages, notes and alternatives; state diagrams as a list of transitions. Colours
come from the style sheet by classes, so one drawing serves light and dark. What it does not know is an error: the build
fails, and the page on GitHub is drawn by Mermaid itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final

_CHAR: Final = 7.2  # width of a character of 13 px, generously
_ROW: Final = 34
_PAD: Final = 14

_PARTICIPANT: Final = re.compile(r"participant (\w+) as (.+)|participant (\w+)")
_MESSAGE: Final = re.compile(r"(\w+)(-->>|->>)(\w+): (.+)")
_NOTE: Final = re.compile(r"Note over (\w+): (.+)")
_TRANSITION: Final = re.compile(r"(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?")


class DiagramError(ValueError):
    """A line that this module does not draw."""


@dataclass
class _Row:
    kind: str
    text: str
    start: int = 0
    end: int = 0


@dataclass
class _Sequence:
    names: dict[str, str] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)

    def place(self, name: str) -> int:
        self.names.setdefault(name, name)
        return list(self.names).index(name)


def diagram(source: str) -> str:
    """An element with the drawing, and with the source's text as its description."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    kind, *rest = lines
    if kind == "sequenceDiagram":
        return _draw(_sequence(rest))
    if kind == "stateDiagram-v2":
        return _transitions(rest)
    raise DiagramError(f"a diagram of the kind {kind!r} can't be drawn")


def _sequence(lines: list[str]) -> _Sequence:
    found = _Sequence()
    for line in lines:
        if match := _PARTICIPANT.fullmatch(line):
            found.names[match[1] or match[3]] = match[2] or match[3]
        elif match := _MESSAGE.fullmatch(line):
            kind = "answer" if match[2] == "-->>" else "message"
            found.rows.append(_Row(kind, match[4], found.place(match[1]), found.place(match[3])))
        elif match := _NOTE.fullmatch(line):
            found.rows.append(_Row("note", match[2], found.place(match[1])))
        elif line.startswith(("alt ", "else ", "loop ", "opt ")):
            found.rows.append(_Row("frame", line))
        elif line == "end":
            found.rows.append(_Row("frame", ""))
        else:
            raise DiagramError(f"a line of a sequence diagram that can't be drawn: {line!r}")
    return found


def _draw(found: _Sequence) -> str:
    columns = _columns(found)
    top = _ROW + _PAD
    bottom = top + _ROW * len(found.rows) + _PAD
    width = columns[-1] + _half(list(found.names.values())[-1]) + _PAD
    for row in found.rows:
        if row.kind == "note" or row.start == row.end:
            width = max(width, columns[row.start] + len(row.text) * _CHAR + 3 * _PAD)
    parts = []
    for x, label in zip(columns, found.names.values(), strict=True):
        half = _half(label)
        parts.append(f'<path class="life" d="M{x:.0f} {_ROW}V{bottom}"/>')
        parts.append(f'<rect x="{x - half:.0f}" y="4" width="{2 * half:.0f}" height="{_ROW - 4}" rx="6"/>')
        parts.append(_text(x, _ROW / 2 + 6, label, "name"))
    for number, row in enumerate(found.rows):
        parts += _row(row, columns, top + _ROW * number + _ROW * 0.7, width)
    label = ", ".join(f"{row.text}" for row in found.rows if row.kind != "frame")
    return (
        f'<div class="diagram" tabindex="0" role="group" aria-label="Sequence diagram"><svg role="img" '
        f'aria-label="{escape(label)}" viewBox="0 0 {width:.0f} {bottom + 4:.0f}" width="{width:.0f}" '
        f'height="{bottom + 4:.0f}">{"".join(parts)}</svg></div>'
    )


def _columns(found: _Sequence) -> list[float]:
    """The middle of each column: far enough apart for the names, and for texts between neighbours."""
    labels = list(found.names.values())
    gaps = [_half(a) + _half(b) + _PAD for a, b in pairwise(labels)]
    for row in sorted(found.rows, key=lambda row: abs(row.start - row.end)):
        low, high = sorted((row.start, row.end))
        if row.kind == "note" and low < len(gaps):
            high = low + 1
        need = len(row.text) * _CHAR + 2 * _PAD
        if row.kind != "frame" and low < high and (missing := need - sum(gaps[low:high])) > 0:
            for index in range(low, high):
                gaps[index] += missing / (high - low)
        if row.kind == "message" and low == high and low < len(gaps):
            gaps[low] = max(gaps[low], need + _PAD)
    columns = [_half(labels[0]) + _PAD]
    for gap in gaps:
        columns.append(columns[-1] + gap)
    return columns


def _row(row: _Row, columns: list[float], y: float, width: float) -> list[str]:
    if row.kind == "frame":
        line = f'<path class="frame" d="M4 {y - 12:.0f}H{width - 4:.0f}"/>'
        return [line, _text(10, y + 3, row.text, "frame", "start")] if row.text else [line]
    x, end = columns[row.start], columns[row.end]
    if row.kind == "note":
        size = len(row.text) * _CHAR + _PAD
        box = f'<rect class="note" x="{x + 6:.0f}" y="{y - 18:.0f}" width="{size:.0f}" height="24" rx="4"/>'
        return [box, _text(x + 6 + size / 2, y - 2, row.text, "note")]
    if row.start == row.end:
        loop = f'<path class="{row.kind}" d="M{x:.0f} {y - 10:.0f}h22v12h-16"/>'
        head = f'<path class="head" d="M{x + 2:.0f} {y + 2:.0f}l9 -4v8z"/>'
        return [loop, head, _text(x + 30, y, row.text, "", "start")]
    turn = 1 if end > x else -1
    line = f'<path class="{row.kind}" d="M{x:.0f} {y:.0f}H{end - turn * 8:.0f}"/>'
    head = f'<path class="head" d="M{end:.0f} {y:.0f}l{-9 * turn} -4v8z"/>'
    return [line, head, _text((x + end) / 2, y - 6, row.text, "")]


def _half(label: str) -> float:
    return len(label) * _CHAR / 2 + _PAD


def _text(x: float, y: float, text: str, css: str, anchor: str = "middle") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f"<text {place}{f' class={chr(34)}{css}{chr(34)}' if css else ''}>{escape(text)}</text>"


def _transitions(lines: list[str]) -> str:
    """A state diagram as a table: from, to, and the event."""
    rows = []
    for line in lines:
        match = _TRANSITION.fullmatch(line)
        if match is None:
            raise DiagramError(f"a line of a state diagram that can't be drawn: {line!r}")
        states = [name if name != "[*]" else other for name, other in ((match[1], "(start)"), (match[2], "(end)"))]
        cells = (f"<code>{escape(states[0])}</code>", f"<code>{escape(states[1])}</code>", escape(match[3] or ""))
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "<tr><th>from</th><th>to</th><th>when</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
