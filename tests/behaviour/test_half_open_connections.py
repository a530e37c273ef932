"""A half-open connection through a real relay, a proxy and the worker's real transport: no call is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from tabrelay.config.settings import Settings
from tabserver import tool
from tabserver.handlers.toolbox import Toolbox
from tabserver.timing import Timing
from tests.support.chaos_proxy import ChaosProxy, Cut
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

SCALE = 5  # divides all times of both ends, except the pings, which are even faster: the worst case
EACH = 12


async def test_a_half_open_connection_loses_no_call_and_runs_none_twice(tmp_path: Path) -> None:
    times, runs = Settings(), Counter[int]()
    finished, gates = Counter[int](), (asyncio.Event(), asyncio.Event())
    box = Toolbox()

    @tool(toolbox=box)
    async def work(number: int) -> int:
        runs[number] += 1
        await gates[number % 2].wait()
        finished[number] += 1
        return number

    timing = Timing(connect_s=5 / SCALE, first_delay_s=1 / SCALE, longest_delay_s=3 / SCALE, stable_s=10 / SCALE)
    scaled: Any = {"heartbeat_s": times.heartbeat_s / SCALE, "grace_s": times.grace_s / SCALE, "abort_after_s": 0.2}
    async with (
        ChaosProxy() as proxy,
        RunningRelay(
            tmp_path,
            ping_interval_s=1.0,
            ping_timeout_s=1.0,
            allow_hosts=(f"127.0.0.1:{proxy.port}",),
            in_flight_caller=2 * EACH,
            **scaled,
        ) as relay,
    ):
        proxy.target = ("127.0.0.1", relay.port)
        async with CPythonWorker(proxy.origin, relay.token, "notes", box, timing) as worker:
            calls = [asyncio.create_task(relay.call("notes", "work", {"number": number})) for number in range(2 * EACH)]
            await until(lambda: len(runs) == 2 * EACH)
            proxy.cut(Cut.HALF_OPEN)
            gates[0].set()  # half of them finish while nothing is forwarded
            await until(lambda: len(finished) == EACH)
            await until(lambda: worker.dialer.opened == 2, 60)
            await worker.until("connected", 60)
            gates[1].set()
            answers = [(await call).json() for call in calls]
    assert [answer["result"]["structuredContent"]["result"] for answer in answers] == list(range(2 * EACH))
    assert set(runs.values()) == {1}
