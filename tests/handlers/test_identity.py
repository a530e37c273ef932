"""Server information: which members are allowed, which source takes precedence, and their place in each protocol
version."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from tabserver.handlers.identity import MAX_ICON, ServerIdentity
from tabserver.handlers.server_description import describe_server
from tabserver.handlers.toolbox import Toolbox
from tabserver.wire.eras import server_info_of

ICON = {"src": "https://app.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"title": 1}, "title is text"),
        ({"title": "x" * 9999}, "title is text of at most"),
        ({"instructions": "x" * 70_000}, "instructions is text of at most 65,536"),
        ({"websiteUrl": []}, "websiteUrl is text"),
        ({"icons": {}}, "icons is a list"),
        ({"icons": [ICON] * 17}, "at most 16 icons"),
        ({"icons": [{"src": "javascript:alert(1)"}]}, "https: or data:"),
        ({"icons": [{"src": "data:" + "x" * MAX_ICON}]}, "an address of at most"),
        ([], "is an object"),
    ],
)
def test_what_mcp_does_not_allow_is_refused_with_the_reason(given: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ServerIdentity.read(given)


def test_each_field_is_of_the_first_that_has_it() -> None:
    front = ServerIdentity.read({"title": "Front", "icons": [ICON | {"other": 1}]})
    rest = ServerIdentity.read({"title": "Back", "version": "2.0", "instructions": "Ask first."})
    merged = ServerIdentity.merged([front, rest, ServerIdentity.read(None)])
    assert merged.info("notes", "1.0") == {"name": "notes", "title": "Front", "version": "2.0", "icons": [ICON]}
    assert merged.instructions == "Ask first."
    assert ServerIdentity.read(merged.to_options()) == merged


def test_a_protocol_version_gets_the_members_that_it_has() -> None:
    info = ServerIdentity.read({"title": "T", "websiteUrl": "https://a.example", "icons": [ICON]}).info("n", "1")
    assert sorted(server_info_of(info, "2026-07-28")) == ["icons", "name", "title", "version", "websiteUrl"]
    assert server_info_of(info, "2025-11-25") == info
    assert server_info_of(info, "2025-06-18") == {"name": "n", "version": "1", "title": "T"}
    assert server_info_of(info, "2024-11-05") == {"name": "n", "version": "1"}


def test_python_describes_its_server_and_is_warned_of_long_instructions() -> None:
    box, changes = Toolbox(), []
    box.listen(lambda: changes.append(1), lambda uri: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        describe_server(title="Notes", instructions="x" * 2048, toolbox=box)
    with pytest.warns(UserWarning, match=r"2,049 characters.*Claude Code"):
        describe_server(instructions="y" * 2049, toolbox=box)
    assert box.identity.title == "Notes" and box.identity.instructions == "y" * 2049
    assert len(changes) == 2 and json.dumps(box.identity.to_options())
    with pytest.raises(ValueError, match="an icon has"):
        describe_server(icons=[{}], toolbox=box)
