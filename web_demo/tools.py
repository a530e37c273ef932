"""Python tools of the demo, which run in the worker that all tabs of this browser share.

A tool is a typed function: its signature becomes the schema that clients see, its docstring the description.
`measure_drawing` and `find_areas` ask the page for its canvas and compute with it. Code here must not block: while it
runs, the worker handles no other call.
"""

import asyncio
import json
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import js
from pyodide.ffi import create_proxy

from tabserver import Bounds, ToolError, ToolResult, tool

# Also in drawing/shared_drawing.js.
CHANNEL = "tabrelay-demo-drawing"
EMPTY = "."
ANSWER_S = 5.0

Cell = tuple[int, int]


@dataclass
class Box:
    left: int
    top: int
    right: int
    bottom: int


@dataclass
class ColorShare:
    color: str
    percent: Annotated[float, "of the painted area"]


@dataclass
class Measures:
    painted_percent: Annotated[float, "of the canvas"]
    box: Annotated[Box | None, "the smallest rectangle around everything; null: the canvas is empty"]
    center: Annotated[list[int] | None, "the mean of all painted places: x, y"]
    colors: list[ColorShare]
    left_right_symmetry: Annotated[float, "0 to 1: how much equals its mirror image within the box"]
    top_bottom_symmetry: Annotated[float, "0 to 1"]


@dataclass
class Area:
    color: str
    box: Box
    percent: Annotated[float, "of the canvas"]


@dataclass
class Areas:
    count: int
    areas: Annotated[list[Area], "the largest first"]


@tool(title="Add two numbers", read_only=True)
def add(a: int | float, b: int | float) -> int | float:
    """Add two numbers. Runs in Python, in the worker that all tabs share."""
    return a + b


@tool(title="Measure the drawing", read_only=True)
async def measure_drawing() -> ToolResult[Measures]:
    """Measure the drawing: place, size, colours and symmetry. Python in the page's worker computes it."""
    picture = await read_picture()
    painted = picture.painted
    if not painted:
        return ToolResult("The canvas is empty.", Measures(0.0, None, None, [], 1.0, 1.0))
    box = picture.box(painted)
    colors = Counter(painted.values()).most_common()
    shares = [ColorShare(picture.colors[letter], percent(count, len(painted))) for letter, count in colors]
    columns, rows = [x for x, _ in painted], [y for _, y in painted]
    mirror_x, mirror_y = min(columns) + max(columns), min(rows) + max(rows)
    found = Measures(
        painted_percent=percent(len(painted), picture.size),
        box=box,
        center=[picture.middle(sum(columns), len(painted)), picture.middle(sum(rows), len(painted))],
        colors=shares,
        left_right_symmetry=alike(painted, {(mirror_x - x, y): letter for (x, y), letter in painted.items()}),
        top_bottom_symmetry=alike(painted, {(x, mirror_y - y): letter for (x, y), letter in painted.items()}),
    )
    names = ", ".join(f"{share.color} {share.percent:g} %" for share in shares)
    text = (
        f"Painted: {found.painted_percent:g} % of the canvas, "
        f"from ({box.left}, {box.top}) to ({box.right}, {box.bottom}). "
        f"Colours: {names}. Symmetry: {found.left_right_symmetry:.0%} left and right, "
        f"{found.top_bottom_symmetry:.0%} top and bottom."
    )
    return ToolResult(text, found)


@tool(title="Find areas of one colour", read_only=True)
async def find_areas(
    limit: Annotated[int, "how many, the largest first", Bounds(ge=1, le=50)] = 5,
) -> ToolResult[Areas]:
    """Find connected areas of one colour, such as a sun or a roof, with their place and size."""
    picture = await read_picture()
    areas = sorted(connected(picture.painted), key=len, reverse=True)
    shown = [
        Area(picture.colors[picture.painted[area[0]]], picture.box(area), percent(len(area), picture.size))
        for area in areas[:limit]
    ]
    lines = [f"{area.color}, {area.percent:g} % of the canvas, around {middle_of(area.box)}" for area in shown]
    text = "\n".join([f"{len(areas)} areas.", *lines]) if areas else "The canvas is empty."
    return ToolResult(text, Areas(len(areas), shown))


class Picture:
    """The canvas as cells: each is empty, or has the letter of a colour."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.cell = int(answer["cell"])
        self.colors: dict[str, str] = answer["colors"]
        rows: list[str] = answer["rows"]
        self.size = sum(map(len, rows))
        self.painted: dict[Cell, str] = {
            (x, y): letter for y, row in enumerate(rows) for x, letter in enumerate(row) if letter != EMPTY
        }

    def box(self, cells: list[Cell] | dict[Cell, str]) -> Box:
        columns, rows = [x for x, _ in cells], [y for _, y in cells]
        edges = (min(columns), min(rows), max(columns) + 1, max(rows) + 1)
        left, top, right, bottom = (edge * self.cell for edge in edges)
        return Box(left, top, right, bottom)

    def middle(self, total: int, count: int) -> int:
        return round((total / count + 0.5) * self.cell)


def connected(painted: dict[Cell, str]) -> list[list[Cell]]:
    """Cells of one colour that touch each other."""
    left = dict(painted)
    areas = []
    while left:
        first, letter = left.popitem()
        area, edge = [first], [first]
        while edge:
            x, y = edge.pop()
            for beside in ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
                if left.get(beside) == letter:
                    del left[beside]
                    area.append(beside)
                    edge.append(beside)
        areas.append(area)
    return areas


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1)


def alike(one: dict[Cell, str], other: dict[Cell, str]) -> float:
    """The share of cells of one that the other has in the same colour."""
    return round(sum(other.get(cell) == letter for cell, letter in one.items()) / len(one), 2)


def middle_of(box: Box) -> str:
    return f"({(box.left + box.right) // 2}, {(box.top + box.bottom) // 2})"


async def read_picture() -> Picture:
    """Ask the tabs of the demo for their canvas. All tabs show the same drawing, so the first answer counts."""
    asked = str(uuid.uuid4())
    answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def receive(event: Any) -> None:
        message = json.loads(event.data)
        if message.get("answer") == asked and not answered.done():
            answered.set_result(message)

    listener = create_proxy(receive)
    channel = js.BroadcastChannel.new(CHANNEL)
    channel.addEventListener("message", listener)
    channel.postMessage(json.dumps({"ask": asked}))
    try:
        return Picture(await asyncio.wait_for(answered, ANSWER_S))
    except TimeoutError:
        raise ToolError("No tab with the drawing answered. Open the demo page and call again.") from None
    finally:
        channel.close()
        listener.destroy()
