"""Search index of the documentation: the text of each page by section, as `docs_search.js` reads it.

A section begins at a heading with an id. Text of diagrams and of invisible elements is left out. It ranks nothing: the
page does.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_HEADINGS: Final = ("h1", "h2", "h3", "h4")
_SKIPPED: Final = ("svg", "script", "style")
_BLOCKS: Final = {"p", "li", "td", "th", "tr", "div", "dt", "dd", "h5", "h6", "blockquote", "br"}

Section = tuple[str, str, str, str]  # id, heading, text, code


def sections(html: str) -> list[Section]:
    """The sections of a page in their order. The first one's heading is the page's title."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return [(anchor, _line(heading), _line(text), _line(code)) for anchor, heading, text, code in reader.found]


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[str]] = [["", "", "", ""]]
        self._place = 2
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in _SKIPPED
        if tag in _HEADINGS:
            anchor = dict(attrs).get("id") or ""
            if tag == "h1":
                self.found = [["", "", "", ""]]
            else:
                self.found.append([anchor, "", "", ""])
            self._place = 1
        elif tag == "pre":
            self._place = 3
            self._add(" ")
        elif tag in _BLOCKS:
            self._add(" ")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in _SKIPPED
        if tag in (*_HEADINGS, "pre"):
            self._place = 2

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        if not self._skipped:
            self.found[-1][self._place] += text
