"""Typed Python: type hints become the schema that clients see."""

from typing import Literal

from tabserver import tool

Unit = Literal["celsius", "fahrenheit", "kelvin"]

# One degree in kelvin, and where the scale begins.
SCALES: dict[Unit, tuple[float, float]] = {
    "celsius": (1, 273.15),
    "fahrenheit": (5 / 9, 459.67 * 5 / 9),
    "kelvin": (1, 0),
}


@tool
def convert_temperature(value: float, unit: Unit, to: Unit = "celsius") -> float:
    """Convert a temperature between units.

    The type hints become the schema: a client sees the allowed units and what it may leave out.
    """
    degree, start = SCALES[unit]
    other_degree, other_start = SCALES[to]
    result = round((value * degree + start - other_start) / other_degree, 2)
    print(f"{value:g} {unit} = {result:g} {to}")
    return result
