"""JSON texts that take long to parse: for each shape, the largest text within given limits."""

from __future__ import annotations

from collections.abc import Callable

from tabrelay.payloads.json_limits import Weight

# Name -> one element, by its number. Elements are members of one object if they have a key, else items of one list.
SHAPES: dict[str, Callable[[int], str]] = {
    "numbers": lambda number: "1",
    "floats": lambda number: "0.12345678901234567",
    "long numbers": lambda number: "1." + "1" * 5000,
    "empty lists": lambda number: "[]",
    "lists of one": lambda number: "[1]",
    "empty objects": lambda number: "{}",
    "objects with their own keys": lambda number: f'{{"{number:x}":1}}',
    "objects with long keys": lambda number: f'{{"{number:060x}":1}}',
    "keys": lambda number: f'"{number:x}":1',
    "long keys": lambda number: f'"{number:070x}":1',
    "the same key": lambda number: '"a":1',
    "empty strings": lambda number: '""',
    "short strings": lambda number: '"ab"',
    "strings of 60": lambda number: f'"{number:060d}"',
    "strings of 70": lambda number: f'"{number:070d}"',
    "wide strings": lambda number: '"\u00e9\u20ac\U0001f980"',
    "escapes": lambda number: r'"\n\"\u00e9"',
    "strings of marks": lambda number: '",:[{,:[{"',
    "a wide letter in each 15,000": lambda number: '"' + "a" * 15_000 + '\U0001f980"',
    "text": lambda number: '"' + "a" * 15_000 + '"',
    "long escapes": lambda number: '"' + r"\n" * 8_000 + '"',
    "long quotes": lambda number: '"' + r"\"" * 8_000 + '"',
    "towers": lambda number: "[" * 50 + "]" * 50,
    "towers of objects": lambda number: '{"a":' * 50 + "1" + "}" * 50,
    "spaces": lambda number: " " * 5000 + "1",
}


def largest(shape: str, most_bytes: int, most_values: int | None = None) -> str:
    """At most this many bytes, and this many values as `json_limits` counts them; None: no limit."""
    element = SHAPES[shape]
    weight = Weight()
    weight.add((element(10**5) + ",").encode() * 1000)
    count = most_bytes // (len(element(10**6).encode()) + 1)
    if most_values is not None:
        count = min(count, most_values * 1000 // weight.total)
    body = ",".join(map(element, range(count)))
    return f"{{{body}}}" if shape in ("keys", "long keys", "the same key") else f"[{body}]"
