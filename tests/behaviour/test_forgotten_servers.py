"""Servers that are removed: from the configuration, or by the user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tabrelay.cli.main import main
from tabrelay.config.specs import BrowserSpec, Spec
from tests.support.child_specs import child
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, until


async def names(relay: RunningRelay) -> set[str]:
    return {row["name"] for row in (await relay.http.get("/-/status")).json()["servers"]}


async def is_unknown(relay: RunningRelay, name: str) -> None:
    """A call is refused at once, without the wait for a page."""
    answer = await relay.call(name, "echo")
    assert (answer.status_code, answer.json()["error"]["data"]["reason"]) == (404, "unknown_server")


async def test_a_child_process_that_left_the_configuration_is_unknown_after_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("files")], servers=("page",)) as relay:
        await relay.has_read("files")
    async with RunningRelay(tmp_path) as relay:
        assert await names(relay) == {"page"}
        await is_unknown(relay, "files")
    async with RunningRelay(tmp_path, specs=[child("files")]) as relay:
        assert await names(relay) == {"files", "page"}
        rows = json.loads((tmp_path / "servers.json").read_text())
        assert rows["files"]["source"]


async def test_what_leaves_the_configuration_of_a_running_relay_is_unknown_at_once(tmp_path: Path) -> None:
    specs: list[Spec] = [child("files"), BrowserSpec("closed"), BrowserSpec("open")]
    async with (
        RunningRelay(tmp_path, specs=specs, servers=("closed", "open")) as relay,
        CPythonWorker(relay.url, relay.token, "open"),
    ):
        await relay.has_read("open")
        waiting = asyncio.create_task(relay.call("closed", "echo"))
        await until(lambda: relay.drain.exchanges.count == 1)
        await relay.app.change([])
        assert (await waiting).json()["error"]["data"]["reason"] == "unknown_server"
        for name in ("files", "closed"):
            await is_unknown(relay, name)
        assert await names(relay) == {"open"}, "its page is connected"


async def test_a_name_is_forgotten_by_the_relay_and_stays_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def forget(*words: str) -> int:
        return await asyncio.to_thread(main, ["forget", *words, "--home", str(tmp_path)])

    settings = {"servers": ("mine",), "specs": [child("files")], "is_registered": True}
    async with RunningRelay(tmp_path, **settings) as relay:  # type: ignore[arg-type]
        async with CPythonWorker(relay.url, relay.token, "notes"):
            await relay.has_read("notes")
            assert await forget("notes") == 1
            assert "online" in capsys.readouterr().err
            assert await forget("files") == 1
            assert "configuration" in capsys.readouterr().err
        relay.tokens.issue_for_page("https://app.example", "notes", ["serve"])
        async with asyncio.timeout(BOUND_S):
            while await forget("notes"):  # noqa: ASYNC110 - until the relay has noticed that the page is gone
                await asyncio.sleep(0.02)
        assert "pairs revoke https://app.example" in capsys.readouterr().out
        assert await forget("mine") == 0
        assert "started with this name" in capsys.readouterr().out
        assert await names(relay) == {"files"}
        assert await forget("mine") == 1
    async with RunningRelay(tmp_path) as relay:
        assert await names(relay) == set()


async def test_a_name_is_forgotten_without_a_relay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with RunningRelay(tmp_path, servers=("a", "b")):
        pass
    assert await asyncio.to_thread(main, ["forget", "a", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out == '"a" is forgotten.\n'
    async with RunningRelay(tmp_path) as relay:
        assert await names(relay) == {"b"}


async def test_relays_with_one_state_directory_keep_each_others_servers(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("a",)), RunningRelay(tmp_path, servers=("b",)):
        pass
    assert set(json.loads((tmp_path / "servers.json").read_text())) == {"a", "b"}
