"""docs/reference/link.md and the source agree on the link's states, its frames, and the clauses that comments cite."""

from __future__ import annotations

import os
import re
from collections import defaultdict

from tabserver.wire import frames
from tabserver.wire.states import ACCEPTS, TRANSITIONS, Phase
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "link.md"
PRODUCT = (ROOT / "browser_pkg" / "tabserver", ROOT / "relay" / "tabrelay")
BLOCK = re.compile(r"(?<=<!-- states -->\n).*?(?=<!-- /states -->)", re.DOTALL)
CLAUSE = re.compile(r"^\*\*([FLP]\d+)\.", re.MULTILINE)
CITATION = re.compile(r"\b[FLP][1-9]\d?\b")
# The text of comments, docstrings and other strings: an identifier such as P1 is not a citation.
PROSE = {
    ".py": re.compile(r'#[^\n]*|"""(.*?)"""|"[^"\n]*"', re.DOTALL),
    ".js": re.compile(r"//[^\n]*|/\*(.*?)\*/", re.DOTALL),
}


def diagram() -> str:
    """The state machine as a Mermaid diagram, generated from the table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.DOWN.name}"]
    lines += [f"    {before.name} --> {after.name}: {what}" for (before, what), after in TRANSITIONS.items()]
    return "\n".join([*lines, f"    {Phase.OVER.name} --> [*]", "```", ""])


def citations() -> dict[str, set[str]]:
    """Clauses and the files that cite them."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for folder in PRODUCT for path in folder.rglob("*") if path.suffix in PROSE):
        for prose in PROSE[path.suffix].finditer(path.read_text(encoding="utf-8")):
            for clause in CITATION.findall(prose[0]):
                found[clause].add(path.relative_to(ROOT).as_posix())
    return found


def test_the_state_diagram_is_the_table() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it again."""
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        text = BLOCK.sub(lambda _: diagram(), text)
        PAGE.write_text(text, encoding="utf-8")
    assert BLOCK.findall(text) == [diagram()]


def test_every_frame_has_its_row_and_every_row_its_frame() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \| (?:worker|relay|both)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    legal = set().union(*ACCEPTS.values())
    assert rows == legal
    assert all(name in frames._FIELDS for name in legal)


def test_every_clause_is_cited_in_the_source_and_every_citation_is_a_clause() -> None:
    """The comment above the code that implements a clause cites it, so that a reader finds one from the other."""
    clauses, cited = CLAUSE.findall(PAGE.read_text(encoding="utf-8")), citations()
    assert len(clauses) == len(set(clauses)) and clauses
    assert {clause for clause in clauses if clause not in cited} == set(), "clauses that no comment cites"
    assert {clause: files for clause, files in cited.items() if clause not in clauses} == {}, "unknown clauses"


def test_rules_of_the_link_are_cited_in_the_wire_except_those_of_the_relay() -> None:
    of_the_relay = {"L8": "take-over", "L12": "slow browsers", "L13": "drain", "L15": "sleep"}
    wire = "browser_pkg/tabserver/wire/"
    cited = {clause for clause, files in citations().items() if any(file.startswith(wire) for file in files)}
    rules = {clause for clause in CLAUSE.findall(PAGE.read_text(encoding="utf-8")) if clause[0] in "FL"}
    assert rules - cited == set(of_the_relay)
