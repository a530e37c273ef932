"""Configuration mistakes: each with file, key, problem and expected value; all of them in one error.

Reading continues after a mistake, so that a user sees all of them at once. Does not find mistakes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tabrelay.config.settings import ConfigError


@dataclass(frozen=True, slots=True)
class Mistake:
    file: str
    key: str
    problem: str
    expected: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else self.file
        return f"{place}: {self.problem}; expected {self.expected}."


class ConfigMistakes(ConfigError):
    """One or more mistakes. The text has a line for each."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = tuple(mistakes)


class KeyPath:
    """Path of a key in a file, and the list to which its mistakes are added."""

    __slots__ = ("_found", "file", "key")

    def __init__(self, file: str, found: list[Mistake], key: str = "") -> None:
        self.file = file
        self.key = key
        self._found = found

    def at(self, key: str | int) -> KeyPath:
        if isinstance(key, int):
            inner = f"{self.key}[{key}]"
        else:
            # A name with a dot or a blank is quoted, as in TOML and JSON.
            name = key if key and key.replace("-", "").replace("_", "").isalnum() else f'"{key}"'
            inner = f"{self.key}.{name}" if self.key else name
        return KeyPath(self.file, self._found, inner)

    def wrong(self, problem: str, expected: str) -> None:
        self._found.append(Mistake(self.file, self.key, problem, expected))

    def __iter__(self) -> Iterator[Mistake]:
        return iter(self._found)
