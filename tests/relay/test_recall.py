"""What a server whose browser is away is remembered by."""

from __future__ import annotations

from tabrelay.faces.recall import recall_legacy, recall_modern
from tabrelay.shelf import Catalogue

WRAPPED = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
TOOL = {"name": "say", "inputSchema": {"type": "object"}, "outputSchema": WRAPPED}


def test_a_modern_client_is_promised_no_legacy_form_of_a_result() -> None:
    """The catalogue is read as a legacy caller; the modern result of this tool is a bare string."""
    catalogue = Catalogue({}, (TOOL,))
    modern = recall_modern("tools/list", "notes", catalogue)
    legacy = recall_legacy("tools/list", {}, "notes", catalogue)
    assert modern is not None and modern["tools"] == [{"name": "say", "inputSchema": {"type": "object"}}]
    assert legacy == {"tools": [TOOL]}
