"""The documentation site builds strictly; its links lead somewhere, and its pages follow the relay's policy.

Addresses outside the site are not fetched: of the relay's own it is checked that they are files that it serves.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from xml.etree import ElementTree

import pytest

from tabrelay.assets.files import Assets
from tabrelay.cli import error_entries
from tests.support.docs_questions import QUESTIONS, is_answered
from tests.support.nodejs import node
from tests.support.paths import ROOT

BASE = "/-/docs/"
BUILD_S = 120


@dataclass
class BuiltPage:
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = BuiltPage()
        self._in: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if "id" in of:
            self.page.ids.add(of["id"])
        self.page.links += [of[name] for name in ("href", "src") if name in of]
        self.page.inline += [name for name in of if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in of):
            self.page.inline.append(tag)
        if tag in ("p", "pre", "code", "a"):
            self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._in and self._in[-1] == tag:
            self._in.pop()

    def handle_data(self, data: str) -> None:
        if self._in == ["p"]:
            self.page.texts.append(data)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site, built from this tree, and the output of the generator."""
    target = tmp_path_factory.mktemp("docs") / "site"
    command: list[str | Path] = [sys.executable, ROOT / ".ci" / "docs_site" / "build.py", "--to", target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return target, ended.stdout


@pytest.fixture(scope="module")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, BuiltPage]:
    """By their address below the relay."""
    found = {}
    for file in sorted(site.rglob("*.html")):
        reader = _Reader()
        reader.feed(file.read_text(encoding="utf-8"))
        found[BASE + file.relative_to(site).as_posix().removesuffix("index.html")] = reader.page
    return found


def test_the_generator_warns_of_nothing(built: tuple[Path, str]) -> None:
    """`make docs` fails for a warning."""
    assert built[1].splitlines()[:-1] == []


def test_every_page_of_docs_has_a_page_of_the_site(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    missing = [
        str(source)
        for source in sources
        if not (site / (source.parent if source.stem == "index" else source.with_suffix("")) / "index.html").is_file()
    ]
    assert missing == []


def test_every_link_leads_to_a_page_and_an_anchor_that_exist(site: Path, pages: dict[str, BuiltPage]) -> None:
    assets = Assets.find()
    broken = []
    for address, page in pages.items():
        for link in page.links:
            split = urlsplit(urljoin(address, link))
            if split.scheme or split.netloc:
                good = split.scheme in ("https", "http")
            elif not split.path.startswith(BASE):
                good = split.path == "/" or assets.lookup(split.path.removeprefix("/-/")) is not None
            elif split.path in pages:
                good = not split.fragment or unquote(split.fragment) in pages[split.path].ids
            else:
                good = (site / split.path.removeprefix(BASE)).is_file()
            if not good:
                broken.append(f"{address}: {link}")
    assert broken == []


def test_no_page_has_inline_scripts_or_styles_or_loads_from_other_hosts(
    site: Path, pages: dict[str, BuiltPage]
) -> None:
    assert {address: page.inline for address, page in pages.items() if page.inline} == {}
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert 'src="http' not in text and '<link rel="stylesheet" href="http' not in text, file


def test_markdown_is_read_as_on_github(pages: dict[str, BuiltPage]) -> None:
    """Text that looks like a list, a table, a heading or a fence was not recognized as one."""
    unread = [
        f"{address}: {line.strip()[:80]}"
        for address, page in pages.items()
        for text in page.texts
        for line in text.splitlines()
        if line.strip().startswith(("- ", "* ", "| ", "#", "```", "1. "))
    ]
    assert unread == []


def test_the_search_index_has_every_page_and_section(site: Path, pages: dict[str, BuiltPage]) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    assert {BASE + page["url"] for page in index} == set(pages) - {f"{BASE}404.html"}
    for page in index:
        ids = {section[0] for section in page["sections"]} - {""}
        assert ids <= pages[BASE + page["url"]].ids
        assert page["sections"][0][1], f"{page['url']} has no title"


async def test_the_search_finds_the_right_page_for_each_question(site: Path) -> None:
    search = (ROOT / "relay" / "tabrelay" / "assets" / "page" / "docs_search.js").as_uri()
    script = f"""
        const {{ readFileSync }} = await import("node:fs");
        const {{ DocsIndex }} = await import("{search}");
        const index = new DocsIndex(JSON.parse(readFileSync({json.dumps(str(site / "search.json"))}, "utf8")));
        const questions = {json.dumps(list(QUESTIONS))};
        console.log(JSON.stringify(questions.map((each) => index.find(each).map((found) => found.url))));
    """
    ended = await node("--input-type=module", "--eval", script)
    assert ended.code == 0, ended.err
    found = dict(zip(QUESTIONS, json.loads(ended.out), strict=True))
    assert found["TR302"][0] == "reference/errors/#tr302"
    assert {question: urls[:4] for question, urls in found.items() if not is_answered(question, urls)} == {}


def test_every_code_of_an_error_is_an_anchor(pages: dict[str, BuiltPage]) -> None:
    """Errors link to it: `Link: </-/docs/reference/errors/#tr302>; rel="help"`."""
    codes = error_entries.entries((ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8"))
    assert {code.lower() for code in codes} <= pages[error_entries.SITE].ids


def test_the_readme_opens_with_an_animation_that_needs_no_script() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    opening = readme.partition("\n## ")[0]
    [image] = re.findall(r"!\[[^\]]+\]\((\S+)\)", opening)
    drawing = (ROOT / image).read_bytes()
    assert len(drawing) < 2_000_000
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    text = drawing.decode()
    assert "<script" not in text and "prefers-reduced-motion" in text
    assert set(re.findall(r'href="([a-z]+:)', text)) == {"data:"}


# Documents without a header: a sandboxed frame, and pages of other origins, which belong to their apps.
NO_HEADER = {
    "web_demo/playground/frame/frame.html",
    "web_demo/examples/cross_origin/index.html",
    "web_demo/examples/poll/view.html",  # clients show it in a frame
    "relay/tabrelay/assets/starter/index.html",
}


def test_every_page_of_the_relay_links_to_the_documentation() -> None:
    header = (ROOT / "relay" / "tabrelay" / "assets" / "page" / "site.js").read_text(encoding="utf-8")
    assert f'"{BASE}"' in header
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in ("relay/tabrelay/assets", "web_demo")
        for path in sorted((ROOT / folder).rglob("*.html"))
        if "<tabrelay-header" not in path.read_text(encoding="utf-8")
    ]
    assert set(found) == NO_HEADER


def test_the_first_page_leads_to_every_guide_and_section(pages: dict[str, BuiltPage]) -> None:
    linked = {urljoin(BASE, link) for link in pages[BASE].links}
    named = [f"{BASE}{folder}/{path.stem}/" for folder in ("guides", "start", "concepts") for path in _pages(folder)]
    assert len(named) > 20 and set(named) <= linked
    assert {
        f"{BASE}{name}/" for name in ("tutorial", "troubleshooting", "compare", "reference/errors", "adr")
    } <= linked


def _pages(folder: str) -> list[Path]:
    return sorted((ROOT / "docs" / folder).glob("*.md"))
