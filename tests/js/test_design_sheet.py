"""The design of the relay's pages, and its copy for shadow roots in other people's pages."""

from __future__ import annotations

import os
import re

from tests.support.paths import ROOT

CSS = ROOT / "relay" / "tabrelay" / "assets" / "page" / "design.css"
SHEET = ROOT / "browser_pkg" / "tabserver" / "js" / "client" / "design_sheet.js"


def test_the_copy_for_shadow_roots_is_the_shared_part_of_the_design() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write the copy again."""
    css = CSS.read_text(encoding="utf-8")
    [shared] = re.findall(r"/\* shared: begin \*/\n(.*)/\* shared: end \*/", css, re.DOTALL)
    assert not {"`", "\\", "${"} & set(shared), "the copy is a template literal"
    sheet = SHEET.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        sheet = re.sub(r"(?<=SHARED = )`.*?`", lambda _: f"`\n{shared}`", sheet, flags=re.DOTALL)
        SHEET.write_text(sheet, encoding="utf-8")
    assert re.findall(r"SHARED = `\n(.*?)`", sheet, re.DOTALL) == [shared]


def test_each_colour_of_the_design_has_a_light_and_a_dark_value() -> None:
    values = re.findall(r"^  (--color-[\w-]+): (.*);$", CSS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(values) >= 11
    assert [name for name, value in values if not re.fullmatch(r"light-dark\(#\w{6}, #\w{6}\)", value)] == []


def test_every_custom_property_that_a_page_uses_is_defined() -> None:
    """A misspelt one would be ignored by the browser."""
    folders = (CSS.parent, ROOT / "web_demo")
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".css", ".html", ".js")]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    defined = {name for text in texts.values() for name in re.findall(r"(--[\w-]+)\"?[:,]", text)}
    used = {(path.name, name) for path, text in texts.items() for name in re.findall(r"var\((--[\w-]+)\)", text)}
    assert len(used) > 100
    assert {(file, name) for file, name in used if name not in defined} == set()
