"""A page of data in PyScript: tools that give a table to programs, and a picture to models and people.

The plot is drawn on the page's own canvas, so that user and agent look at the same one.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from pyscript import document, when, window
from pyscript.js_modules import tabrelay

from tabserver import Image, tool
from tabserver.page import offer

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
City = Literal["Lisbon", "Oslo", "Quito", "Sydney"]
# Mean temperatures in °C, rounded: an example, not a record.
DATA: dict[City, list[float]] = {
    "Lisbon": [11.6, 12.7, 14.9, 15.9, 18.0, 21.2, 23.1, 23.5, 22.1, 18.8, 15.0, 12.4],
    "Oslo": [-2.3, -2.0, 1.5, 6.1, 11.5, 15.3, 17.7, 16.5, 12.0, 6.6, 1.8, -1.9],
    "Quito": [14.9, 14.9, 14.8, 14.8, 14.9, 14.8, 14.8, 15.2, 15.1, 14.9, 14.7, 14.8],
    "Sydney": [23.5, 23.4, 22.1, 19.5, 16.6, 14.2, 13.4, 14.5, 17.0, 18.9, 20.4, 22.1],
}
COLOURS = {"Lisbon": "#c2571a", "Oslo": "#2f7fc1", "Quito": "#8a63b8", "Sydney": "#1f8f6b"}
LOW, HIGH = -5, 25
shown = list(DATA)


@dataclass
class Row:
    """One city over the year."""

    city: City
    months: dict[str, float]
    mean: float
    warmest: str
    coldest: str


@tool(read_only=True)
def temperatures(cities: list[City] | None = None) -> list[Row]:
    """Mean temperatures by month in °C, as a table; of all cities, or of some."""
    return [_row(city) for city in cities or DATA]


@tool
def plot(cities: list[City] | None = None) -> Any:
    """Draw the temperatures on the page, and give the drawing as a picture."""
    chosen = cities or list(DATA)
    shown[:] = chosen
    _draw(chosen)
    picture = document.querySelector("#plot").toDataURL("image/png").partition(",")[2]
    return [f"Mean temperature by month in °C: {', '.join(chosen)}.", Image(picture)]


def _row(city: City) -> Row:
    values = DATA[city]
    by_month = dict(zip(MONTHS, values, strict=True))
    mean = round(math.fsum(values) / len(values), 1)
    return Row(city, by_month, mean, max(by_month, key=by_month.__getitem__), min(by_month, key=by_month.__getitem__))


def _draw(cities: list[City]) -> None:
    canvas = document.querySelector("#plot")
    style = window.getComputedStyle(document.documentElement)
    paper, ink, rule = (style.getPropertyValue(name) for name in ("--sheet", "--soft", "--rule"))
    pen = canvas.getContext("2d")
    width, height = float(canvas.width), float(canvas.height)
    left, right, top, bottom = 70, width - 130, 30, height - 60

    def x(month: int) -> float:
        return left + (right - left) * month / 11

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - LOW) / (HIGH - LOW)

    def line(points: list[tuple[float, float]], colour: str, width: float) -> None:
        pen.strokeStyle, pen.lineWidth, pen.lineJoin = colour, width, "round"
        pen.beginPath()
        for place in points:
            pen.lineTo(*place)
        pen.stroke()

    pen.fillStyle = paper
    pen.fillRect(0, 0, width, height)
    pen.font, pen.textBaseline, pen.fillStyle = "22px system-ui, sans-serif", "middle", ink
    pen.textAlign = "right"
    for degrees in range(LOW, HIGH + 1, 5):
        line([(left, y(degrees)), (right, y(degrees))], rule, 2 if degrees == 0 else 1)
        pen.fillText(f"{degrees}°", left - 14, y(degrees))
    pen.textAlign = "center"
    for number, month in enumerate(MONTHS):
        pen.fillText(month, x(number), bottom + 30)
    pen.textAlign = "left"
    # Names at the ends of their lines, moved apart where those meet.
    lowest = bottom + 40.0
    for city in sorted(cities, key=lambda city: DATA[city][-1]):
        line([(x(month), y(value)) for month, value in enumerate(DATA[city])], COLOURS[city], 4)
        lowest = min(y(DATA[city][-1]), lowest - 26)
        pen.fillStyle = COLOURS[city]
        pen.fillText(city, right + 16, lowest)


def _fill_table() -> None:
    head = "".join(f"<th scope='col'>{month}</th>" for month in MONTHS)
    rows = [
        f"<tr><th scope='row'>{city}</th>" + "".join(f"<td>{value:.1f}</td>" for value in values) + "</tr>"
        for city, values in DATA.items()
    ]
    document.querySelector("#table").innerHTML = f"<tr><th>°C</th>{head}</tr>{''.join(rows)}"


@when("change", window.matchMedia("(prefers-color-scheme: dark)"))
def redraw(event: object) -> None:
    _draw(shown)


_fill_table()
_draw(shown)
offer(tabrelay.connect, server="weather")
