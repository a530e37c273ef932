"""Store of servers' catalogues: one copy of each, all of them within one budget of memory."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest

from tabrelay.faces.mcp.param_header_cache import MAX_SIZE, ParamHeaderCache
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore
from tabrelay.routing.registry import Registry
from tabserver.wire.events import Received
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

SCHEMAS: dict[str, Any] = {
    "empty objects": {"type": "object", "enum": [{} for _ in range(4_000)]},
    "empty arrays": {"type": "object", "enum": [[] for _ in range(4_000)]},
    "objects": {"type": "object", "enum": [{"a": {}} for _ in range(2_000)]},
    "numbers": {"type": "object", "enum": list(range(1_000, 5_000))},
    "properties": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(500)}},
    "text": {"type": "object", "description": "x" * 20_000},
}


def tool(number: int, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"t{number}", "inputSchema": schema}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_a_catalogue_counts_as_the_memory_that_it_takes(schema: dict[str, Any]) -> None:
    text = orjson.dumps([tool(number, schema) for number in range(5)])
    tracemalloc.start()
    try:
        tools = orjson.loads(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken * 0.8 <= Catalogue({}, tools=tuple(tools)).size <= taken * 4


def held() -> int:
    """Bytes of all catalogues in this process, whichever object has them."""
    gc.collect()
    return sum(each.size for each in gc.get_objects() if isinstance(each, Catalogue))


async def test_catalogues_of_many_names_take_no_more_than_their_budget(tmp_path: Path) -> None:
    before = held()
    budget = 8_000_000
    async with RunningRelay(tmp_path, catalogue_budget=budget, away_wait_s=0) as relay:
        workers = []
        for number in range(12):
            worker = SyntheticWorker(relay.url, relay.token, f"n{number}", inst=f"w{number}")
            worker.tools = [tool(each, SCHEMAS["empty objects"] | {"title": f"{number}"}) for each in range(2)]
            workers.append(await worker.__aenter__())
            await relay.has_read(f"n{number}")
        one = Catalogue({}, tools=tuple(workers[0].tools)).size
        assert 12 * one > 2 * budget > 4 * one
        # A client uses each, so that more is kept of it.
        for number in range(12):
            await relay.call(f"n{number}", "t0")
        assert held() - before <= budget + one
        # Names that are still stored offer the same: an evicted entry does not count as a change.
        answer = await relay.http.post("/n0", **relay.modern("tools/list"))
        assert len(answer.json()["result"]["tools"]) == 2
        for worker in workers:
            await worker.__aexit__(None, None, None)


async def test_of_names_that_are_forgotten_nothing_is_kept(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_servers=5, grace_s=0) as relay:
        reader = relay.app._app._app._catalogue_reader
        for number in range(30):
            async with SyntheticWorker(relay.url, relay.token, f"n{number}", inst=f"w{number}"):
                await relay.has_read(f"n{number}")
        await until(lambda: not reader._read_states)
        assert len(reader._digests) <= 5 + 1
        assert len(reader._readings) + len(reader._reread) == 0


class Endless(SyntheticWorker):
    """Lists resources in pages that never end, each of 50 KB, with a long description of itself."""

    pages = 0

    def _received(self, event: Received[str]) -> None:
        message = json.loads(event.payload)
        if message.get("method") == "initialize":
            said = {"capabilities": {"resources": {}}, "serverInfo": {"name": "synthetic", "version": "1"}}
            said |= {"instructions": "x" * 100_000, "more": "x" * 1_000_000}
            self.answer(event, {"protocolVersion": "2025-11-25", **said})
        elif message.get("method") == "resources/list":
            self.pages += 1
            row = {"uri": f"x:{self.pages}", "name": "n", "description": "y" * 8_000}
            rows = [row | {"uri": f"x:{self.pages}-{number}"} for number in range(6)]
            self.answer(event, {"resources": rows, "nextCursor": str(self.pages)})
        else:
            super()._received(event)


async def test_of_a_list_without_end_and_a_long_introduction_the_relay_keeps_a_bounded_part(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, Endless(relay.url, relay.token, "notes") as worker:
        await relay.has_read("notes")
        catalogue = relay.app._app._app._registry.find("notes").catalogue
        assert 20 < len(catalogue.resources) < 40
        assert len(orjson.dumps(catalogue.resources)) <= relay.settings.max_list
        assert worker.pages < 10
        assert "more" not in catalogue.initialize and "x" * 1_000 not in json.dumps(catalogue.initialize)


def test_the_cache_of_repeated_arguments_is_bounded_and_knows_another_catalogue() -> None:
    cache = ParamHeaderCache()
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "h" * 1_000}}}
    other = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "Other"}}}
    for number in range(3 * MAX_SIZE // 1_000):
        [mirror] = cache.find(f"n{number}", Catalogue({}, tools=(tool(1, schema),)), "t1")
        assert len(mirror.header) >= 1_000
    assert len(cache) <= MAX_SIZE // 1_000
    first, second = Catalogue({}, tools=(tool(1, schema),)), Catalogue({}, tools=(tool(1, other),))
    assert cache.find("n", first, "t1") != cache.find("n", second, "t1")
    assert cache.find("n", second, "none") == ()


def test_a_catalogue_that_is_larger_than_the_budget_is_not_kept() -> None:
    registry = Registry(CatalogueStore(None), catalogue_budget=10_000)
    registry.declare("notes")
    registry.catalogues.keep("notes", Catalogue({}, tools=(tool(1, {"description": "x" * 20_000}),)))
    assert registry.find("notes").catalogue is None
    registry.catalogues.keep("notes", Catalogue({}, tools=(tool(1, {"type": "object"}),)))
    assert registry.find("notes").catalogue is not None
