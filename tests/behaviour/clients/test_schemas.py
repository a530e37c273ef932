"""Arguments that a user types as text reach Python with the right type, in clients that convert by the schema."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tests.behaviour.clients.clients import InspectorTalk
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


@dataclass
class Point:
    x: float
    label: str | None = None


BOX = Toolbox()


@tool(toolbox=BOX)
def show(
    a: int | float,
    b: int | None = None,
    c: bool | None = None,
    unit: Unit | None = None,
    mode: Literal["fast", "slow"] = "fast",
    many: list[int | str] | None = None,
    point: Point | None = None,
    either: int | str = 0,
) -> str:
    """Name what was given."""
    return repr((a, b, c, unit, mode, many, point, either))


@pytest.fixture(scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningRelay]:
    async with (
        RunningRelay(tmp_path_factory.mktemp("relay")) as relay,
        CPythonWorker(relay.url, relay.token, "notes", BOX),
    ):
        await relay.has_read("notes")
        yield relay


def text(outcome: dict[str, Any]) -> str:
    assert "content" in outcome, outcome
    return str(outcome["content"][0]["text"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_converts_typed_arguments(relay: RunningRelay, era: str) -> None:
    talk = InspectorTalk(era, f"{relay.url}/notes", relay.token)
    said = await talk.call_with_texts("show", a="2")
    assert text(said) == repr((2, None, None, None, "fast", None, None, 0))
    given = {"a": "2.5", "b": "3", "c": "true", "unit": "ft", "mode": "slow", "many": '[1, "x"]', "either": "many"}
    said = await talk.call_with_texts("show", **given, point='{"x": 1}')
    assert text(said) == repr((2.5, 3, True, Unit.FOOT, "slow", [1, "x"], Point(1.0), "many"))
