"""The relay's table of ACP sessions: its bounds, and reports that are not valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tabrelay.faces.mcp.acp_sessions import MAX_CALLED, MAX_CONDUCTORS, SILENT_S, AcpSessions
from tests.support.running_relay import RunningRelay


def report(id: str) -> Any:
    return {"agent": "a", "sessions": [{"session": "s", "servers": [{"server": "notes", "server_id": id}]}]}


def test_a_conductor_that_is_silent_for_a_while_is_removed() -> None:
    now = 0.0
    editors = AcpSessions(lambda: now)
    editors.report("one", report("x"))
    now += SILENT_S
    assert [row["server_id"] for row in editors.describe(lambda name: True)] == ["x"]
    now += 1
    assert editors.describe(lambda name: True) == []


def test_the_relay_keeps_no_more_conductors_than_it_can() -> None:
    editors = AcpSessions(lambda: 0.0)
    for number in range(MAX_CONDUCTORS):
        editors.report(str(number), report(str(number)))
    with pytest.raises(ValueError):
        editors.report("one more", report("x"))
    editors.report("0", report("again"))


def test_the_relay_remembers_no_more_of_those_who_called_than_it_can() -> None:
    editors = AcpSessions(lambda: 0.0)
    for number in range(MAX_CALLED + 1):
        editors.add_acp_meta(f"id{number} c", {"id": 1, "method": "x", "params": {}})
    editors.add_acp_meta("x" * 5000, {"id": 1, "method": "x", "params": {}})
    for id, is_used in (("id0", False), ("id1", True), (f"id{MAX_CALLED}", True), ("x" * 256, False)):
        editors.report("one", report(id))
        assert [row["is_used"] for row in editors.describe(lambda name: True)] == [is_used], id


def test_who_may_not_see_a_server_does_not_see_its_sessions() -> None:
    editors = AcpSessions(lambda: 0.0)
    editors.report("one", report("x"))
    assert editors.describe(lambda name: name != "notes") == []


@pytest.mark.parametrize("told", [None, [], {}, {"sessions": 1}, {"sessions": [{"servers": [{}] * 3}, 5, None]}])
async def test_a_report_that_is_none_does_no_harm(tmp_path: Path, told: Any) -> None:
    async with RunningRelay(tmp_path) as relay:
        answer = await relay.http.put("/-/acp/x", json=told)
        assert answer.status_code in (200, 400, 415)  # without a body it has no content type
        assert (await relay.http.get("/-/status")).json()["acp"] == []
        stranger = await relay.http.put("/-/acp/x", json=told, headers={"Authorization": "Bearer no"})
        assert stranger.status_code == 401
