"""Location of a browser, from the view of a third relay that never had it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.link_worker import ECHO_TOOL, OTHER_TOOL, SyntheticWorker
from tests.support.memory_bus import MemoryBus
from tests.support.relay_pair import Pair, Stream, answer_of, ending, meeting, open_session
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[tuple[Pair, RunningRelay]]:
    settings: dict[str, Any] = {"away_wait_s": 2.0}
    async with (
        meeting(tmp_path, **settings) as pair,
        RunningRelay(tmp_path, bus=MemoryBus(pair.hub), **settings) as third,
    ):
        await third.knows(nodes=3)
        yield pair, third


async def is_away(relay: RunningRelay, server: str) -> bool:
    rows = (await relay.http.get("/-/status")).json()["servers"]
    return [row["state"] for row in rows if row["name"] == server] == ["offline"]


async def test_a_name_that_another_principal_took_while_its_browser_was_away_is_found_everywhere(
    trio: tuple[Pair, RunningRelay],
) -> None:
    pair, third = trio
    token = pair.a.tokens.issue_named("other", ("serve",))
    first = pair.worker(pair.b, "notes")
    async with first:
        assert "result" in answer_of(await pair.a.call("notes", "echo"))
        first.link.bye(1000, "closing", 0.0)  # without it, the name is kept for its principal
        await first.flush()
        await first.hang_up()
        await until(lambda: is_away(pair.b, "notes"))
        async with SyntheticWorker(third.url, token, "notes", inst="w2") as second:
            for relay in (third, pair.b, pair.a):
                assert "result" in answer_of(await relay.call("notes", "echo"))
            assert len(second.calls) == 3


async def test_a_name_whose_relay_does_not_answer_is_not_unknown(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is suspended: queries reach it, and no answer comes back."""
    async with pair.worker(pair.b, "notes"):
        monkeypatch.setattr(pair.hub.nodes[1], "answer", lambda reply, data: None)
        response = await pair.a.call("notes", "echo")
        assert ending(response) == ("relay_unavailable", "no")
        assert answer_of(response)["error"]["data"]["retryable"] is True
        assert (await pair.a.call("unknown", "echo")).status_code == 404  # the bus itself reports that there is none
        monkeypatch.undo()
        assert "result" in answer_of(await pair.a.call("notes", "echo"))


async def test_a_session_receives_from_its_server_again_after_its_relay_alone_was_off_the_bus(tmp_path: Path) -> None:
    """The bus was down for long enough that the browser's relay declared it lost, and ended its sessions there."""
    async with meeting(tmp_path, bus_beat_s=0.3) as pair, pair.worker(pair.b, "notes") as worker:
        stream = Stream(pair.a, "GET", "notes", headers=await open_session(pair.a, "notes"))
        turns = itertools.cycle([[OTHER_TOOL], [ECHO_TOOL]])

        async def is_received() -> bool:  # its relay may still be reading the previous list
            await worker.change_tools(next(turns))
            return len(stream.said) > before

        before = 0
        await until(is_received)
        pair.hub.cut()
        pair.hub.restore(pair.hub.nodes[1])
        await pair.b.knows(nodes=1)
        pair.hub.restore()
        before = len(stream.said)
        await until(is_received)
        await stream.leave()
