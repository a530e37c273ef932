"""Programs of the playground outside the editor: in addresses, in the storage of the browser, and as pages."""

from __future__ import annotations

import json
from typing import Any

from tests.support.nodejs import node
from tests.support.paths import SUPPORT


async def play(what: str) -> Any:
    ended = await node(SUPPORT / "playground_programs.mjs", what)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


async def test_a_shared_program_is_read_as_it_was_written_and_within_its_bound() -> None:
    found = await play("share")
    assert found["isSame"] and found["isSafe"] and found["length"] < 300
    assert found["none"] is None and found["empty"] is None
    for name in ("cut", "other", "odd", "long"):
        assert "can't be read" in found[name]["error"], name
    # Ten million characters that are a few kilobytes in the address.
    assert f"more than {found['max']} characters" in found["bomb"]["error"]
    assert found["most"] == found["max"]
    assert "at most" in found["tooLong"]["error"]


async def test_saved_programs_have_names_and_a_bound_and_are_checked_when_read() -> None:
    found = await play("save")
    assert [(each["name"], each["source"]) for each in found["list"]] == [("first", "z"), ("second", "y")]
    assert found["left"] == ["first"]
    assert "name" in found["unnamed"]
    assert "20 programs" in found["full"]
    assert found["again"] is None
    assert found["checked"] == ["ok"]
    assert found["broken"] == []
    assert "did not store it" in found["blocked"]
