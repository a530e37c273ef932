"""docs/link.md tells the truth about the link's states and frames."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tabserver.wire import frames
from tabserver.wire.states import ACCEPTS, TRANSITIONS, Phase

PAGE = Path(__file__).resolve().parent.parent / "docs" / "link.md"
BLOCK = re.compile(r"(?<=<!-- states -->\n).*?(?=<!-- /states -->)", re.DOTALL)


def diagram() -> str:
    """The state machine as a Mermaid diagram, straight from the table."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.DOWN.name}"]
    lines += [f"    {before.name} --> {after.name}: {what}" for (before, what), after in TRANSITIONS.items()]
    return "\n".join([*lines, f"    {Phase.OVER.name} --> [*]", "```", ""])


def test_the_state_diagram_is_the_table() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it anew."""
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
