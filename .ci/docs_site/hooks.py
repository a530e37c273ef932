"""Hooks of the documentation site: navigation, pages from files outside docs/, diagrams, and the search index.

ProperDocs calls the functions `on_*` while it builds. Markdown is read as GitHub reads it, because the same files are
read there: lists need no empty line before them, anchors have GitHub's form, and links to files outside docs/ become
addresses of the relay. Does not know what the pages look like: that is the theme's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from markdown import Extension, Markdown
from properdocs.structure.files import File

from diagrams import diagram
from navigation import DECISIONS, list_of_decisions, navigation
from search_index import sections

ROOT: Final = Path(__file__).resolve().parents[2]
# Pages of the site that are files in the root of the tree.
OUTSIDE: Final = {"project/contributing.md": "CONTRIBUTING.md", "project/changes.md": "CHANGELOG.md"}
# Links to files that the relay serves, or that have no page.
SERVED: Final = {
    "web_demo/examples": "/-/demo/examples/",
    "browser_pkg/tabserver/js/client.d.ts": "/-/client.d.ts",
    "browser_pkg/tabserver/js/status.d.ts": "/-/status.d.ts",
}
PAGES: Final = {"README.md": "index.md", **{file: page for page, file in OUTSIDE.items()}}
# Long tables, lists of files and old decisions are found last. Pages of many short sections would hide the guides.
WEIGHTS: Final = {
    "index": 0.8,
    "project/": 0.3,
    "adr/": 0.4,
    "project/contributing": 0.6,
    "project/changes": 0.6,
    "reference/measurements": 0.4,
    "reference/threats": 0.4,
    "reference/conformance": 0.5,
    "reference/loader": 0.5,
    "reference/limits": 0.6,
    "reference/console-api": 0.6,
    "reference/link": 0.8,
    "guides/acp": 0.85,
    "reference/errors": 0.85,
    "reference/api": 0.85,
    "reference/cli": 0.9,
}

ERRORS: Final = "reference/errors.md"

_ENTRY: Final = re.compile(r"^### (TR\d{3})\n\n\*\*(.+)\*\*(.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^(\s*)(```+|~~~+)(\w*)(?: title=\"([^\"]+)\")?")
_COMMENT: Final = re.compile(r"^\s*<!--.*-->\s*$")
_ITEM: Final = re.compile(r"^(\s*)(?:[-*+]|\d+\.)\s")
_ROW: Final = re.compile(r"^\s*\|.*\|\s*$")

_index: list[dict[str, Any]] = []


class _NoHtml(Extension):
    """Pages are Markdown only: what looks like an element is text, so no page can bring a script or a style."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


def slug(text: str, separator: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    _index.clear()
    config.nav = navigation(Path(config.docs_dir), list(OUTSIDE))
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    fences = [{"name": "mermaid", "class": "diagram", "format": _diagram}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    config.markdown_extensions.append(_NoHtml())
    return config


def on_files(files: Any, config: Any) -> Any:
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, DECISIONS, content=list_of_decisions(Path(config.docs_dir))))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    # The folder in the tree that the page's links start from.
    home = Path() if uri in OUTSIDE else Path("docs", uri).parent
    if uri == ERRORS:
        markdown = _ENTRY.sub(_titled, markdown)
    lines = _as_github(markdown.splitlines())
    return _LINK.sub(lambda link: _link(link, home, Path(uri).parent), "\n".join(lines))


def _titled(entry: re.Match[str]) -> str:
    """The entry of an error with its title in the heading, which search and contents show. The anchor is the code."""
    code, title, more = entry.groups()
    title = title.replace("{", "&#123;").replace("}", "&#125;")  # braces would be read as attributes
    return f"### {code}: {title} {{ #{code.lower()} }}\n\n{more.strip()}"


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    weight = next((WEIGHTS[start] for start in sorted(WEIGHTS, key=len, reverse=True) if uri.startswith(start)), 1.0)
    _index.append({"url": page.url if page.url != "./" else "", "weight": weight, "sections": sections(html)})
    # The focus can reach what scrolls sideways.
    html = html.replace("<table>", '<div class="table" tabindex="0" role="group" aria-label="Table"><table>')
    return html.replace("</table>", "</table></div>")


def on_post_build(config: Any) -> None:
    text = json.dumps(_index, ensure_ascii=False, separators=(",", ":"))
    Path(config.site_dir, "search.json").write_text(text, encoding="utf-8")


def _diagram(source: str, language: str, css_class: str, options: Any, md: Any, **_: Any) -> str:
    return diagram(source)


def _link(link: re.Match[str], home: Path, folder: Path) -> str:
    before, target, anchor = link[1], link[2], link[3] or ""
    if "://" in target or target.startswith(("/", "mailto:")):
        return link[0]
    inside = _normal(home / target)
    if (ROOT / inside).is_dir() and inside not in SERVED:
        inside += "/README.md"
    if inside in SERVED:
        return f"{before}{SERVED[inside]}{anchor})"
    if inside in PAGES:
        inside = f"docs/{PAGES[inside]}"
        anchor = "" if inside == "docs/index.md" else anchor
    if not inside.startswith("docs/"):
        return link[0]  # the strict build reports it
    up = "../" * len(folder.parts)
    return f"{before}{up}{inside.removeprefix('docs/')}{anchor})"


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _as_github(lines: list[str]) -> list[str]:
    """What Python-Markdown reads otherwise than GitHub: a list or a table right after a paragraph, a pipe in code in a
    table, and comments. The title of a block of code becomes a line above it."""
    result: list[str] = []
    fence = ""
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if found := _FENCE.match(line):
            if not fence:
                fence = found[2]
                if found[4]:
                    result += ["", f"{found[1]}`{found[4]}`", f"{found[1]}{{: .docs-file }}", ""]
                line = found[1] + found[2] + found[3]
            elif line.strip().startswith(fence):
                fence = ""
        elif not fence and _COMMENT.match(line):
            line = ""
        elif not fence:
            is_block = _ITEM.match(line) or _ROW.match(line)
            same = bool(_ITEM.match(before)) if _ITEM.match(line) else bool(_ROW.match(before))
            if is_block and before.strip() and not same and not before.startswith((" ", "#")):
                result.append("")
            if _ROW.match(line):
                line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
        result.append(line)
    return result
