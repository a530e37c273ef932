"""Time that jumps by 0.1 s to a day, in a relay: deadlines, calls in flight, relays on one bus, and the time of day,
which may also jump backwards."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tabrelay.routing.deadline_queue import EARLY_S, DeadlineQueue
from tabserver import tool
from tabserver.handlers.toolbox import Toolbox
from tests.support.cpython_worker import CPythonWorker
from tests.support.fake_clock import JUMPS_S
from tests.support.jumping_loop import JumpingLoop, run_jumping
from tests.support.link_worker import SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.paths import ROOT
from tests.support.relay_pair import answer_of
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

WAIT_S = 10.0


class Deadlines:
    """A queue of deadlines on a loop that jumps, and the outcome of each."""

    def __init__(self, loop: JumpingLoop, seed: int) -> None:
        self.loop, self.chance = loop, random.Random(seed)
        self.due_at: dict[int, float] = {}
        self.ended: Counter[int] = Counter()
        self.popped: set[int] = set()
        self.ticker: DeadlineQueue[int] = DeadlineQueue(WAIT_S, self.on_due)

    def on_due(self, number: int) -> None:
        assert self.loop.time() + 2 * EARLY_S >= self.due_at[number], "before its time"
        self.ended[number] += 1
        if self.chance.random() < 0.2 and self.ticker:  # one may end another
            other = self.chance.choice(list(self.ticker))
            self.popped.add(other)
            self.ticker.pop(other)
        if self.chance.random() < 0.2:
            raise RuntimeError("its caller fails")

    def add(self, number: int) -> None:
        self.due_at[number] = self.loop.time() + WAIT_S
        self.ticker.add(number)


@pytest.mark.parametrize("seed", range(40))
def test_each_deadline_is_met_once_and_none_too_early_however_time_jumps(seed: int) -> None:
    async def scenario(loop: JumpingLoop) -> None:
        loop.set_exception_handler(lambda loop, context: None)
        deadlines = Deadlines(loop, seed)
        for number in range(60):
            deadlines.add(number)
            if deadlines.chance.random() < 0.3:
                loop.jump(deadlines.chance.choice(JUMPS_S))
            for _ in range(deadlines.chance.randrange(3)):
                await asyncio.sleep(0)
        loop.jump(86_400)
        await until(lambda: not deadlines.ticker)
        assert set(deadlines.ended) | deadlines.popped == set(range(60))
        assert set(deadlines.ended.values()) <= {1} and not set(deadlines.ended) & deadlines.popped

    run_jumping(scenario)


class Work:
    """A tool that ends when the test permits it."""

    def __init__(self) -> None:
        self.runs, self.gate, self.box = Counter[int](), asyncio.Event(), Toolbox()

        @tool(toolbox=self.box)
        async def work(number: int) -> int:
            self.runs[number] += 1
            await self.gate.wait()
            return number


@pytest.mark.parametrize("jumps", [(0.1, 40.0), (200.0,), (31.0, 52.0, 100.0)])
def test_calls_in_flight_survive_a_jump_shorter_than_their_deadline(tmp_path: Path, jumps: tuple[float, ...]) -> None:
    async def scenario(loop: JumpingLoop) -> None:
        work = Work()
        async with RunningRelay(tmp_path) as relay:
            relay.http.timeout = None
            async with CPythonWorker(relay.url, relay.token, "notes", work.box):
                calls = [asyncio.create_task(relay.call("notes", "work", {"number": one})) for one in range(4)]
                await until(lambda: len(work.runs) == 4)
                for jump in jumps:
                    loop.jump(jump)
                    for _ in range(50):
                        await asyncio.sleep(0)
                work.gate.set()
                answers = [answer_of(await call)["result"]["structuredContent"]["result"] for call in calls]
                assert answers == [0, 1, 2, 3] and set(work.runs.values()) == {1}

    run_jumping(scenario)


def test_after_a_day_calls_get_true_outcomes_and_the_next_one_is_answered(tmp_path: Path) -> None:
    async def scenario(loop: JumpingLoop) -> None:
        work = Work()
        async with RunningRelay(tmp_path) as relay:
            relay.http.timeout = None
            async with CPythonWorker(relay.url, relay.token, "notes", work.box) as worker:
                call = asyncio.create_task(relay.call("notes", "work", {"number": 1}))
                await until(lambda: len(work.runs) == 1)
                loop.jump(86_400)
                error = answer_of(await call)["error"]["data"]
                assert (error["reason"], error["delivered"]) == ("timeout", "unknown")
                await worker.until("connected", 60)
                work.gate.set()
                assert answer_of(await relay.call("notes", "work", {"number": 2}))["result"]
                assert set(work.runs.values()) == {1}

    run_jumping(scenario)


def test_relays_on_one_bus_know_each_other_after_any_jump(tmp_path: Path) -> None:
    async def scenario(loop: JumpingLoop) -> None:
        hub, work = MemoryBroker(), Work()
        work.gate.set()
        async with (
            RunningRelay(tmp_path, bus=MemoryBus(hub)) as a,
            RunningRelay(tmp_path, bus=MemoryBus(hub)) as b,
        ):
            await a.knows(nodes=2)
            async with CPythonWorker(b.url, b.token, "notes", work.box) as worker:
                await a.has_found("notes")
                for number, jump in enumerate(JUMPS_S):
                    loop.jump(jump)
                    await asyncio.sleep(0)
                    await worker.until("connected", 60)
                    await a.knows(nodes=2)
                    a.http.timeout = None
                    answer = answer_of(await a.call("notes", "work", {"number": number}))
                    assert answer["result"]["structuredContent"] == {"result": number}
                assert set(work.runs.values()) == {1}

    run_jumping(scenario)


def test_a_pong_that_waited_unread_through_a_stall_keeps_the_socket(tmp_path: Path) -> None:
    async def scenario(loop: JumpingLoop) -> None:
        async with (
            RunningRelay(tmp_path, ping_interval_s=0.1, ping_timeout_s=5.0) as relay,
            SyntheticWorker(relay.url, relay.token, "notes") as worker,
        ):
            for _ in range(20):
                loop.jump(6.0)  # a ping is due, and is sent
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                loop.jump(6.0)  # and its pong is late, because this process was stopped
                for _ in range(50):
                    await asyncio.sleep(0)
            assert worker.close_code is None
            assert (await relay.call("notes", "echo")).json()["result"]

    run_jumping(scenario)


# Places that may read the time of day: it is shown to users, or compared with a date of another program. No wait uses
# it.
WALL_CLOCK = {
    "relay/tabrelay/server/cluster.py": "how long ago, in the status of other relays",
    "relay/tabrelay/server/status_report.py": "how long ago, in the status",
    "relay/tabrelay/server/console_parts.py": "dates of captured calls, for the console",
    "relay/tabrelay/observe/capture/call_capture.py": "dates of captured calls, for the console",
    "relay/tabrelay/observe/capture/captured_call.py": "dates of captured calls, for the console",
    "relay/tabrelay/bus/members.py": "since when a relay runs, for people",
    "relay/tabrelay/bridge/clock.py": "dates in Retry-After and OAuth",
    "relay/tabrelay/faces/web/pairing.py": "how old a grant is, for people",
    "relay/tabrelay/faces/mcp/tab_pins.py": "age of state that outlives the relay",
    "relay/tabrelay/faces/mcp/sessions.py": "age of state that outlives the relay",
    "relay/tabrelay/observe/call_log.py": "dates in the call log",
    "relay/tabrelay/admission/oauth.py": "expiry dates of tokens",
    "relay/tabrelay/peers/nodes/local_browsers.py": "which of two browsers is the newer, across relays",
    "relay/tabrelay/routing/registry.py": "when a server was seen, for people",
    "relay/tabrelay/system/state_file.py": "age of files that were left over",
    "relay/tabrelay/admission/tokens.py": "expiry dates of tokens",
    "relay/tabrelay/server/otel.py": "dates in traces",
    "relay/tabrelay/cli/pairs.py": "ages, for people",
    "relay/tabrelay/cli/token.py": "ages, for people",
    "relay/tabrelay/cli/wait_notice.py": "until when a call waits, for people",
    "relay/tabrelay/cli/serve.py": "which of several relays was started last",
    "relay/tabrelay/system/relay_records.py": "age of files that were left over",
    "browser_pkg/tabserver/browser/file_fetcher.py": "dates of files, beside those of their server",
    "relay/tabrelay/observe/process_metrics.py": "start of the process, for Prometheus",
    "relay/tabrelay/assets/page/console/breakpoints_panel.js": "how long a call is held, for people",
    "relay/tabrelay/assets/page/console/console.js": "calls of the last minutes, for people",
    "relay/tabrelay/assets/page/console/filter.js": "calls that run, by their time so far",
    "relay/tabrelay/assets/page/console/lanes.js": "calls of the last minutes, for people",
    "relay/tabrelay/assets/page/console/overview.js": "how long ago, for people",
    "relay/tabrelay/assets/page/console/clients_part.js": "how long ago, for people",
    "relay/tabrelay/assets/page/console/traffic.js": "how long a call runs, for people",
    "relay/tabrelay/assets/page/console/waterfall.js": "how long a call runs, for people",
    "relay/tabrelay/bridge/oauth/assertions.py": "dates in assertions",
    "relay/tabrelay/bridge/oauth/dpop.py": "dates in proofs",
    "relay/tabrelay/faces/web/console_breakpoints.py": "until when a call is held, for people",
    "relay/tabrelay/observe/capture/breakpoints.py": "since when a call is held, for people",
    "relay/tabrelay/assets/page/nodes.js": "how long a relay runs, for people",
    "browser_pkg/tabserver/mcp/server.py": "expiry of state that outlives the worker",
    "browser_pkg/tabserver/worker/service.py": "since when a state lasts, for the page",
    "browser_pkg/tabserver/worker/snapshot_reset.py": "names it in a comment",
    "browser_pkg/tabserver/js/worker/task_store.js": "expiry of tasks that outlive the worker",
    "browser_pkg/tabserver/js/client/offers.js": "which of two tabs offered a tool first",
    "browser_pkg/tabserver/js/client/state.js": "since when a state lasts, for the page",
    "browser_pkg/tabserver/js/client/request_pairing.js": "when a code expires, for people",
    "browser_pkg/tabserver/js/client/corner_panel.js": "how long a code is valid, for people",
}


def test_the_time_of_day_is_read_only_where_no_wait_depends_on_it() -> None:
    reads = re.compile(r"\btime\.time(_ns)?\b|\bDate\.now\b")
    paths = [
        path.relative_to(ROOT).as_posix()
        for folder in ("relay/tabrelay", "browser_pkg/tabserver")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js") and "vendor" not in path.parts and reads.search(path.read_text("utf-8"))
    ]
    assert sorted(paths) == sorted(WALL_CLOCK)
