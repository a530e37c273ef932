"""A page of data in PyScript: tools that give a table to programs, and a picture to models and people.

User and agent look at the same plot. It is drawn at the size that it has on the screen, so that it is readable on a
phone; for the agent it is drawn again at a fixed size.
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
# For light and for dark pages.
COLOURS = {
    "Lisbon": ("#b34a10", "#ff9d66"),
    "Oslo": ("#1c63a8", "#7fb8f0"),
    "Quito": ("#74479f", "#c3a0ea"),
    "Sydney": ("#12705a", "#5fcfab"),
}
LOW, HIGH = -5, 25
PICTURE = (1200, 560)  # pixels of the picture for agents
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
    shown[:] = cities or list(DATA)
    _show()
    canvas = document.createElement("canvas")
    canvas.width, canvas.height = PICTURE
    _draw(canvas, *PICTURE, scale=1.5)
    picture = canvas.toDataURL("image/png").partition(",")[2]
    return [f"Mean temperature by month in °C: {', '.join(shown)}.", Image(picture)]


def _row(city: City) -> Row:
    values = DATA[city]
    by_month = dict(zip(MONTHS, values, strict=True))
    mean = round(math.fsum(values) / len(values), 1)
    return Row(city, by_month, mean, max(by_month, key=by_month.__getitem__), min(by_month, key=by_month.__getitem__))


def _show(*_: object) -> None:
    """Draw on the page's canvas, at its size on the screen."""
    canvas = document.querySelector("#plot")
    ratio = window.devicePixelRatio
    width, height = canvas.clientWidth, canvas.clientHeight
    if not width:
        return
    canvas.width, canvas.height = round(width * ratio), round(height * ratio)
    canvas.getContext("2d").scale(ratio, ratio)
    _draw(canvas, width, height)


def _draw(canvas: Any, width: float, height: float, scale: float = 1) -> None:
    """The plot, in lengths of CSS pixels; `scale` makes texts and lines larger."""
    is_dark = window.matchMedia("(prefers-color-scheme: dark)").matches
    page = window.getComputedStyle(document.querySelector(".card"))
    ink, paper, rule = page.color, page.backgroundColor, page.borderTopColor
    months = MONTHS if width > 520 else [month[0] for month in MONTHS]
    left, right, top, bottom = 46 * scale, width - 62 * scale, 14 * scale, height - 32 * scale
    pen = canvas.getContext("2d")

    def x(month: int) -> float:
        return left + (right - left) * month / 11

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - LOW) / (HIGH - LOW)

    def line(points: list[tuple[float, float]], colour: str, width: float) -> None:
        pen.strokeStyle, pen.lineWidth, pen.lineJoin = colour, width * scale, "round"
        pen.beginPath()
        for place in points:
            pen.lineTo(*place)
        pen.stroke()

    pen.fillStyle = paper
    pen.fillRect(0, 0, width, height)
    pen.font, pen.textBaseline, pen.fillStyle = f"{14 * scale}px system-ui, sans-serif", "middle", ink
    pen.textAlign = "right"
    for degrees in range(LOW, HIGH + 1, 5):
        line([(left, y(degrees)), (right, y(degrees))], rule, 2 if degrees == 0 else 1)
        pen.fillText(f"{degrees} °C", left - 6 * scale, y(degrees))
    pen.textAlign = "center"
    for number, month in enumerate(months):
        pen.fillText(month, x(number), bottom + 18 * scale)
    pen.textAlign = "left"
    # Names at the ends of their lines, moved apart where those meet.
    lowest = bottom + 30 * scale
    for city in sorted(shown, key=lambda city: DATA[city][-1]):
        colour = COLOURS[city][is_dark]
        line([(x(month), y(value)) for month, value in enumerate(DATA[city])], colour, 2.5)
        lowest = min(y(DATA[city][-1]), lowest - 17 * scale)
        pen.fillStyle = colour
        pen.fillText(city, right + 8 * scale, lowest)


def _fill_table() -> None:
    head = "".join(f"<th scope='col'>{month}</th>" for month in MONTHS)
    rows = [
        f"<tr><th scope='row'>{city}</th>" + "".join(f"<td>{value:.1f}</td>" for value in values) + "</tr>"
        for city, values in DATA.items()
    ]
    document.querySelector("#table").innerHTML = f"<tr><th>°C</th>{head}</tr>{''.join(rows)}"


when("change", window.matchMedia("(prefers-color-scheme: dark)"))(_show)
when("resize", window)(_show)
_fill_table()
document.querySelector("#starting").hidden = True
_show()
offer(tabrelay.connect, server="weather", title="A year of weather")
