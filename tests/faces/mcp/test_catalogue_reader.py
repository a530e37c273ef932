"""The relay's reading of a server's lists: bounded memory and bounded time on the event loop."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

from tabrelay.config.settings import KIB
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.behaviour.test_loop_time import LIMIT_MS, TRIES
from tests.support.json_shapes import largest
from tests.support.link_worker import SyntheticWorker
from tests.support.measured_relay import MeasuredRelay, Slow, measured_relay
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, until

MARK = 1_937  # length of a list that no other code makes


class Lister(SyntheticWorker):
    """A browser with lists of every kind. `items` is the text of each; `held` has the requests without an answer."""

    items = ""
    holds = ""

    def __init__(self, url: str, token: str, server: str) -> None:
        super().__init__(url, token, server)
        self.held: list[Received[str]] = []

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload) if event.kind is Kind.REQ else {}
        method = message.get("method", "")
        if method == "initialize":
            about: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
            info = {"name": "x", "version": "1"}
            self.answer(event, {"protocolVersion": "2025-11-25", "capabilities": about, "serverInfo": info})
        elif method and method == self.holds:
            self.held.append(event)
        elif method.endswith("/list"):
            self.give(event, method)
        else:
            super()._received(event)

    def give(self, event: Received[str], method: str) -> None:
        lists = {
            "tools/list": '"tools":[{"name":"x","inputSchema":{"type":"object","properties":%s}}]',
            "resources/list": '"resources":[{"uri":"x:","name":"x","_meta":%s}]',
            "resources/templates/list": '"resourceTemplates":[{"uriTemplate":"x:","name":"x","_meta":%s}]',
            "prompts/list": '"prompts":[{"name":"x","_meta":%s}]',
        }
        result = lists[method] % f'{{"a":{self.items}}}'
        self.send_text(event, Kind.RES, f'{{"jsonrpc":"2.0","id":{json.dumps(event.id)},"result":{{{result}}}}}')


def marked() -> int:
    """The number of lists with values that come from the browser's lists."""
    return sum(type(each) is list and len(each) == MARK and each[0] == [] for each in gc.get_objects())


async def test_lists_wait_as_text_until_all_of_them_are_read(tmp_path: Path) -> None:
    """A browser may leave between two lists. Values take up to 20 times the memory of text, and no budget counts them
    yet."""
    worker = Lister
    worker.items, worker.holds = "[" + ",".join(["[]"] * MARK) + "]", "prompts/list"
    async with RunningRelay(tmp_path) as relay, worker(relay.url, relay.token, "notes") as browser:
        await browser.until(lambda: len(browser.held) == 1)  # the other three were read
        await until(lambda: marked() == 0)
        browser.give(browser.held[0], "prompts/list")
        await browser.flush()
        await relay.has_read("notes")
        assert marked() == 4


async def test_a_catalogue_of_the_largest_lists_is_read_in_several_callbacks(tmp_path: Path) -> None:
    found: list[Slow] = []
    worker = Lister
    worker.items, worker.holds = largest("a wide letter in each 15,000", 1_000 * KIB), ""
    async with measured_relay(tmp_path, rate_s=0, max_list=1_024 * KIB) as relay:
        for number in range(TRIES):
            name = f"n{number}"
            await relay.reset()
            async with worker(relay.url, relay.token, name), asyncio.timeout(BOUND_S):
                await has_read(relay, name)
            found.append((await relay.longest())[0])
            if found[-1].ms < LIMIT_MS * 0.9:
                break
    assert min(each.ms for each in found) < LIMIT_MS, found


async def has_read(relay: MeasuredRelay, name: str) -> None:
    while True:
        rows = (await relay.http.get("/-/status")).json()["servers"]
        if any(row["name"] == name and row["title"] is not None and not row["stale"] for row in rows):
            return
        await asyncio.sleep(0.02)
