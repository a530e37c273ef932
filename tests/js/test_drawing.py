"""The demo's drawing in several tabs: what two of them draw at the same time, and the bound of what they store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.nodejs import node
from tests.support.paths import SUPPORT


@pytest.fixture(scope="module")
async def found() -> dict[str, Any]:
    ended = await node(SUPPORT / "drawings.mjs")
    assert ended.code == 0, ended.err
    shown: dict[str, Any] = json.loads(ended.out)
    return shown


def test_what_two_tabs_draw_at_once_is_kept_in_both(found: dict[str, Any]) -> None:
    one, other = found["atOnce"]
    assert one == other
    assert sorted(one) == ["You 1", "You 2", "agent 3"]


def test_a_stroke_is_kept_while_a_tool_draws_in_another_tab(found: dict[str, Any]) -> None:
    """The tool changes its shape all the time, so its tab always has a newer version."""
    drawn = found["whileOneChanges"]
    assert "You 2" in drawn["during"]
    assert drawn["one"] == drawn["other"] == ["agent 60", "You 2"]


def test_a_step_that_another_tab_took_back_stays_away(found: dict[str, Any]) -> None:
    assert found["undone"] == [["agent 2"], ["agent 2"]]


def test_a_drawing_that_many_tabs_have_changed_stays_small(found: dict[str, Any]) -> None:
    assert found["manyTabs"] == {"shapes": 50, "tabs": 20}
