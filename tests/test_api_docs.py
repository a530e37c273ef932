"""docs/reference/api.md agrees with the docstrings and is complete."""

from __future__ import annotations

import os
import re
from pathlib import Path

import tabserver
from tests.support.api_reference import TYPES, reference
from tests.support.paths import JS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"


def test_the_reference_is_generated_from_the_docstrings() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it again."""
    made = reference()
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made


def test_every_public_name_is_in_it_and_documented() -> None:
    headings = set(re.findall(r"^### `(\w+)`", reference(), re.MULTILINE))
    types = "".join(file.read_text(encoding="utf-8") for file in TYPES.values())
    exported = set(re.findall(r"^export (?:declare )?\w+ (\w+)", types, re.MULTILINE))
    assert set(tabserver.__all__) | (exported - {"function", "class"}) <= headings
    undocumented = [name for name in tabserver.__all__ if not getattr(tabserver, name).__doc__]
    assert undocumented == []


def test_every_name_of_the_entry_files_has_a_reference() -> None:
    """The entry files beside the folders have public URLs. Those that are left out here are parts of the others."""
    exports = re.compile(r"^export (?:(?:async )?(?:const|function|class) (\w+)|\{ ([^}]*) \})", re.MULTILINE)

    def names(file: str) -> set[str]:
        found = exports.findall((JS / file).read_text(encoding="utf-8"))
        return {name for one, several in found for name in (one or several.split(" as ")[-1]).split(", ")}

    api = PAGE.read_text(encoding="utf-8")
    assert {name for name in names("client.js") | names("status.js") if f"### `{name}`" not in api} == set()
    loader = PAGE.with_name("loader.md").read_text(encoding="utf-8")
    assert {name for name in names("tabrelay.js") if not re.search(rf"^\| `{name}\b", loader, re.MULTILINE)} == set()
    view = (JS / "app_view.js").read_text(encoding="utf-8").partition("class AppView")[2].partition("\n  }\n")[0]
    methods = set(re.findall(r"^    (?:async )?(\w+)\(.*\) \{$", view, re.MULTILINE)) - {"constructor", "notified"}
    apps = (PAGE.parents[1] / "guides" / "apps.md").read_text(encoding="utf-8")
    assert len(methods) > 3
    assert {name for name in methods if f"`view.{name}(" not in apps} == set()
