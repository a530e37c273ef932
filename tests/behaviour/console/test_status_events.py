"""What changes a console's status without a call: pages that ask to be paired, and pages that are refused."""

from __future__ import annotations

from pathlib import Path

from tests.support.console import open_console
from tests.support.running_relay import RunningRelay

STATUS = {"type": "status"}
ORIGIN = "https://app.example"


async def test_a_page_that_asks_to_be_paired_is_reported_at_once(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, open_console(relay) as console:
        console.events.clear()
        asked = await relay.http.post(
            "/-/ask", json={"server": "notes"}, headers={"Origin": ORIGIN, "Authorization": ""}
        )
        assert asked.status_code == 200
        await console.until(lambda: STATUS in console.events)
        [asking] = (await relay.http.get("/-/pairs")).json()["asking"]
        assert asking["origin"] == ORIGIN


async def test_a_page_that_is_refused_is_reported_at_once(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, plain=("notes",)) as relay, open_console(relay) as console:
        console.events.clear()
        refused = await relay.http.get("/-/probe/notes", headers={"Origin": ORIGIN})
        assert refused.status_code == 403
        await console.until(lambda: STATUS in console.events)
