"""The recorder that holds the relay's words to the official models notices what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tabserver.wire import jsonrpc
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.relay import RunningRelay
from tests.support.worker import SyntheticWorker


def mumble(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """Progress that does not say how far."""
    worker.send(event, Kind.NOTE, jsonrpc.notification("notifications/progress", {}))
    worker.echo(event, message)


async def test_a_result_and_a_notice_of_the_wrong_shape_are_noticed(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, is_strict=True) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        assert relay.recorder is not None
        _, headers = await relay.initialize("notes")
        call = jsonrpc.request(1, "tools/call", {"name": "echo"})
        await relay.http.post("/notes", json=call, headers=headers)
        assert (relay.recorder.checked, relay.recorder.wrong) == (2, [])
        worker.on_call = lambda worker, event, message: worker.answer(event, {"content": 7})
        await relay.http.post("/notes", json=call, headers=headers)
        await relay.call("notes", "echo")
        worker.on_call = mumble
        await relay.http.post("/notes", json=call, headers=headers)
        assert [line.partition(":")[0] for line in relay.recorder.wrong] == ["2025-11-25", "2026-07-28", "2025-11-25"]
        relay.recorder.wrong.clear()


async def test_a_test_fails_when_its_relay_said_something_wrong(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        async with (
            RunningRelay(tmp_path, is_strict=True) as relay,
            SyntheticWorker(relay.url, relay.token, "notes") as worker,
        ):
            worker.on_call = lambda worker, event, message: worker.answer(event, {"content": 7})
            await relay.call("notes", "echo")
