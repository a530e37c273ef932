from typing import Literal

from tabserver import tool

Unit = Literal["celsius", "fahrenheit", "kelvin"]
TO_CELSIUS = {
    "celsius": lambda value: value,
    "fahrenheit": lambda value: (value - 32) * 5 / 9,
    "kelvin": lambda value: value - 273.15,
}
FROM_CELSIUS = {
    "celsius": lambda value: value,
    "fahrenheit": lambda value: value * 9 / 5 + 32,
    "kelvin": lambda value: value + 273.15,
}


@tool
def convert_temperature(value: float, unit: Unit, to: Unit = "celsius") -> float:
    """Convert a temperature between units.

    The type hints become the schema: a client sees the allowed units and what it may leave out.
    """
    result = round(FROM_CELSIUS[to](TO_CELSIUS[unit](value)), 2)
    print(f"{value:g} {unit} = {result:g} {to}")
    return result
