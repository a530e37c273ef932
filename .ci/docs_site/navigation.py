"""Navigation of the documentation: its sections, the folder of each, and the order of the pages in it.

A page that the table does not name comes after the named ones of its folder, in the order of the titles. A named page
that does not exist is left out. Does not read the pages' text, except for titles.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

# Title, folder, and the pages that come first.
SECTIONS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("Start", "start", ("install", "first-tool", "clients")),
    ("Tutorial", "tutorial", ()),
    (
        "Guides",
        "guides",
        (
            *("pages", "javascript", "python", "pyscript", "micropython", "frameworks", "console", "tabs"),
            *("tasks", "apps", "skills"),
        ),
    ),
    ("Reference", "reference", ("api", "cli", "settings", "config", "limits", "errors", "metrics", "link")),
    ("Concepts", "concepts", ("architecture", "lifecycle", "security", "performance")),
    ("Project", "project", ("contributing", "changes")),
)
# Pages at the top of docs, before the last section.
LAST: Final = ("troubleshooting.md", "compare.md")
DECISIONS: Final = "adr/README.md"

Item = dict[str, str] | dict[str, list[str]]


def navigation(docs: Path, generated: list[str]) -> list[Item]:
    """The `nav` of the configuration, for the pages in this folder and those that hooks make."""
    items: list[Item] = [{"Overview": "index.md"}]
    for title, folder, first in SECTIONS:
        pages = [path.relative_to(docs).as_posix() for path in (docs / folder).glob("*.md")]
        pages += [name for name in generated if name.startswith(f"{folder}/")]
        named = [f"{folder}/{stem}.md" for stem in ("index", *first)]
        ordered = [name for name in named if name in pages]
        ordered += sorted((name for name in pages if name not in named), key=lambda name: _title(docs / name))
        if folder == "concepts":
            ordered.append(DECISIONS)
        if ordered:
            items.append({title: ordered})
    items[-1:-1] = [{_title(docs / name): name} for name in LAST if (docs / name).is_file()]
    return items


def list_of_decisions(docs: Path) -> str:
    """The page that lists the decisions, newest first."""
    pages = sorted((docs / DECISIONS).parent.glob("[0-9]*.md"), reverse=True)
    rows = [f"- [{_title(page)}]({page.name})" for page in pages]
    about = (
        "Each page is one decision that rejected an alternative: the context, what was decided, and why not otherwise."
    )
    return "\n".join(["# Decisions", "", about, "", *rows, ""])


def _title(path: Path) -> str:
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) if path.is_file() else None
    return found[1] if found else path.stem
