"""docs/troubleshooting.md: the messages in its headings are those of the program."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
PRODUCT = ("relay/tabrelay", "browser_pkg/tabserver")
# Between the quotation marks of two literals that Python or JavaScript joins.
JOINED = re.compile(r"""["'`]\s*\+?\s*\n\s*f?["'`]""")
# Of other programs.
FOREIGN = ("tabrelay: command not found", "print()")
SHORTEST = 8


def messages() -> list[str]:
    """Headings that are messages: code, from the first character to the last."""
    found = re.findall(r"^### `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [message for message in found if message not in FOREIGN]


@cache
def program() -> str:
    """The source, with the parts of joined texts side by side."""
    files = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".js")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return JOINED.sub("", text).replace("\\'", "'").replace('\\"', '"')


def parts(message: str) -> list[str]:
    """The constant parts of a message: between its values, which are in braces, and its clauses, which the source may
    put together."""
    found = [part.strip(' ".:') for part in re.split(r"\{\w+\}|[.,:] ", message)]
    return [part for part in found if len(part) >= SHORTEST]


@pytest.mark.parametrize("message", messages())
def test_every_message_is_one_of_the_program(message: str) -> None:
    assert [part for part in parts(message) if part not in program()] == []


def test_there_are_messages_and_symptoms() -> None:
    symptoms = re.findall(r"^### [^`].*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(messages()) > 25 and len(symptoms) > 5
