"""Soak test: does memory, or the number of descriptors and tasks, grow while everything happens to a relay that can?

Two relays run beside each other, with 20 CPython workers (the real transport and MCP core) and one real Chromium:

    steady      15 workers and Chromium. Calls of both eras, callers that give up, results of 2 MiB, sockets that are
                cut, page reloads, tokens that are made and revoked. It is restarted three times during the warm-up
                and then runs to the end: a slope needs one process that lives long. After the last restart it is
                asked for every large file that browsers load, because it keeps those that it has read.
    restarted   5 workers and their callers. It is restarted every few minutes for the whole time.

The warm-up takes ten minutes (a third of a shorter run). At its end, and again at the end of the run, all load pauses
for a while, and the descriptors (but for log files, which are opened when they are first written) and tasks of the
steady relay are counted. Both counts must be the same. The slope of its memory is the Theil-Sen estimate (the median of
the slopes between all pairs of samples) over the samples between the two pauses. It must be under 1 MB per hour,
resident and unique. Runs that measure less than 20 minutes report the slope and do not judge it: it is noise.

Other violations: a call without an answer, with another call's answer, or that ran twice; a revoked token that works;
an exception in a relay's log or the page. The exit code is 1 if there is any.

Samples are written to build/bench/soak.jsonl while the run goes on; `--report` makes table and plot of a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

import httpx2
from playwright.async_api import async_playwright

from bench import machine, soak_report
from bench.boot import site
from bench.soak_load import Caller, Tab, change_tokens, load_files, write_page
from bench.stage import ROOT, TOKEN, Child
from tests.support.chaos_proxy import ChaosProxy
from tests.support.playwright_settings import load_settings

FOLDER: Final = ROOT / "build" / "bench"
WARM_UP_MIN: Final = 10.0
RESTARTS: Final = (0.2, 0.4, 0.6)  # of the steady relay, as parts of the warm-up
REST_S: Final = 90.0  # longer than a lost link (30 s) and an idle HTTP connection, such as Chromium's (75 s), are kept
SETTLED_S: Final = 120.0
TAB: Final = "chromium"


class Relay:
    """`tabrelay serve` with a state directory, a port and a log that outlive its restarts."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home
        self.log = FOLDER / f"soak-{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.url = self.token = ""
        self._port = 0
        self._flags: tuple[str, ...] = ()
        self._child: asyncio.subprocess.Process | None = None

    async def start(self, *flags: str) -> None:
        self._flags = flags or self._flags
        command = ("-m", "tabrelay", "serve", "--json", "--port", str(self._port), "--home", str(self.home))
        with self.log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, *command, *self._flags, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._child.stdout is not None
        said = json.loads(await self._child.stdout.readline())
        self.url, self.token = said["base_url"], said["token"]
        self._port = httpx2.URL(self.url).port or 0

    async def stop(self) -> None:
        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._child.wait(), 60)
            if self._child.returncode is None:
                self._child.kill()
                await self._child.wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def exceptions(self) -> int:
        text = self.log.read_text(errors="replace")
        return text.count("Traceback (most recent call last)") + text.count("ERROR")

    def figures(self) -> dict[str, int]:
        assert self._child is not None
        return process_figures(self._child.pid)

    def open_files(self) -> dict[str, int]:
        """Descriptors by kind. The first line that is written to a log file opens it."""
        assert self._child is not None
        found: Counter[str] = Counter()
        for path in Path(f"/proc/{self._child.pid}/fd").iterdir():
            with suppress(OSError):
                target = path.readlink()
                is_log = target.parent == self.home / "log"
                found["log files" if is_log else str(target).partition(":")[0]] += 1
        return dict(found)

    async def tasks(self, http: httpx2.AsyncClient) -> dict[str, int]:
        headers = {"Authorization": f"Bearer {self.token}"}
        lines = (await http.get(f"{self.url}/-/metrics", headers=headers)).text.splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {
            "tasks": int(float(found["tabrelay_tasks"])),
            "in_flight": int(float(found["tabrelay_calls_in_flight"])),
        }


def process_figures(pid: int) -> dict[str, int]:
    """Resident and unique memory in bytes, and open descriptors, from /proc."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.endswith(" kB")}
    unique = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return {"rss": sizes["Rss"], "uss": unique, "fds": len(list(Path(f"/proc/{pid}/fd").iterdir()))}


@dataclass(frozen=True, slots=True)
class Plan:
    minutes: float
    workers: int
    restarted: int
    callers: int
    has_chromium: bool
    seed: int

    @property
    def warm_up_s(self) -> float:
        return min(WARM_UP_MIN, self.minutes / 3) * 60

    @property
    def restart_every_s(self) -> float:
        return min(180.0, self.minutes * 60 / 6)

    @property
    def sample_every_s(self) -> float:
        return max(2.0, min(10.0, self.minutes * 60 / 300))


class Soak:
    """One run. `begin` starts all processes, `run` goes through the phases."""

    def __init__(self, plan: Plan, file: Path) -> None:
        self._plan, self._file = plan, file
        self._outcomes: Counter[str] = Counter()
        self._load: list[asyncio.Task[None]] = []
        self._all: list[asyncio.Task[None]] = []
        self._tab: Tab | None = None
        self._began = 0.0
        self._workers_report: dict[str, Any] = {}

    async def begin(self, stack: AsyncExitStack) -> None:
        plan = self._plan
        homes = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tabrelay-soak-")))
        self._steady, self._restarted = Relay("steady", homes / "steady"), Relay("restarted", homes / "restarted")
        folder, origin = await stack.enter_async_context(site())
        proxy = await stack.enter_async_context(ChaosProxy())
        flags = ("--allow-host", f"127.0.0.1:{proxy.port}", "--allow-origin", origin)
        for relay in (self._steady, self._restarted):
            stack.push_async_callback(relay.stop)
            await relay.start(*flags, "--log-level", "warning")
        proxy.target = ("127.0.0.1", int(httpx2.URL(self._steady.url).port or 0))
        self._http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=30))
        first = plan.workers - plan.restarted
        self._names = {
            relay: [f"{relay.name}-{number}" for number in range(count)]
            for relay, count in ((self._steady, first), (self._restarted, plan.restarted))
        }
        addresses = [(relay.url, name) for relay, names in self._names.items() for name in names]
        secrets = " ".join(dict.fromkeys(relay.token for relay, names in self._names.items() if names))
        env = {TOKEN: secrets}
        self._worker_process = await asyncio.to_thread(
            Child, "bench.soak_workers", json.dumps(addresses), str(plan.seed), env=env
        )
        stack.callback(self._worker_process.stop)
        if plan.has_chromium:
            write_page(folder, proxy.origin, self._steady.token, TAB)
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(**load_settings().launch_options())
            stack.push_async_callback(browser.close)
            chance = random.Random(f"{plan.seed} tab")
            self._tab = await Tab.open(browser, f"{origin}/index.html", proxy, chance, self._outcomes)

    async def run(self) -> dict[str, Any]:
        plan = self._plan
        self._began = monotonic()
        self._all = [asyncio.create_task(self._sample()), asyncio.create_task(self._restart_often())]
        try:
            self._start_load()
            for part in RESTARTS:
                await self._until(plan.warm_up_s * part)
                await self._steady.restart()
                self._outcomes["restarts, steady relay"] += 1
            await load_files(self._http, self._steady.url)
            await self._until(plan.warm_up_s)
            first = await self._rest()
            measured_from = monotonic() - self._began
            self._start_load()
            await self._until(max(plan.minutes * 60, measured_from + 60))
            measured_to = monotonic() - self._began
            last = await self._rest()
        finally:
            for task in [*self._load, *self._all]:
                task.cancel()
            await asyncio.gather(*self._load, *self._all, return_exceptions=True)
        for relay in (self._steady, self._restarted):
            self._outcomes["EXCEPTION IN A RELAY'S LOG"] += relay.exceptions()
        self._outcomes["CALL RAN TWICE"] += self._workers_report["twice"]
        counted = {f"{name} in workers": count for name, count in self._workers_report["counts"].items()}
        return {
            "measured": [measured_from, measured_to],
            "rests": [first, last],
            "outcomes": {**self._outcomes, **counted},
        }

    # -- phases --------------------------------------------------------------------------------------------------------

    def _start_load(self) -> None:
        plan, seed, jobs = self._plan, self._plan.seed, []
        for relay, names in self._names.items():
            for name in names:
                for number in range(plan.callers):
                    chance = random.Random(f"{seed} {name} {number}")
                    jobs.append(Caller(relay.url, relay.token, name, chance, self._outcomes).run())
            if names:
                jobs.append(change_tokens(relay.url, relay.home, names[0], self._outcomes))
        if self._tab is not None:
            jobs += [self._tab.cut(), self._tab.reload()]
            for number in range(3):
                chance = random.Random(f"{seed} {TAB} {number}")
                relay = self._steady
                jobs.append(Caller(relay.url, relay.token, TAB, chance, self._outcomes).run())
        self._load = [asyncio.create_task(job) for job in jobs]

    async def _until(self, at_s: float) -> None:
        while (left := at_s - (monotonic() - self._began)) > 0:
            await asyncio.sleep(min(left, 1))
            for task in [*self._load, *self._all]:
                if task.done():
                    task.result()

    async def _rest(self) -> dict[str, Any]:
        """Stop the load, wait until everything is connected and quiet, and count."""
        await self._command_workers("rest")
        for task in self._load:
            task.cancel()
        await asyncio.gather(*self._load, return_exceptions=True)
        self._load = []
        if self._tab is not None:
            await self._tab.is_back()
            await self._tab.count_runs()
        await asyncio.sleep(REST_S)
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(SETTLED_S):
            while len(seen) < 5 or any(one != seen[-1] for one in seen[-5:]):
                workers = await self._command_workers("")
                opened, tasks = self._steady.open_files(), await self._steady.tasks(self._http)
                is_quiet = tasks["in_flight"] == 0 and workers["connected"] == self._plan.workers
                if is_quiet:
                    fds = sum(count for kind, count in opened.items() if kind != "log files")
                    rest = {"fds": fds, "tasks": tasks["tasks"], "worker_tasks": workers["tasks"], "open": opened}
                    seen.append(rest)
                await asyncio.sleep(2)
        await self._command_workers("cut")
        return seen[-1]

    async def _restart_often(self) -> None:
        while self._names[self._restarted]:
            await asyncio.sleep(self._plan.restart_every_s)
            await self._restarted.restart()
            self._outcomes["restarts, the other relay"] += 1

    async def _command_workers(self, command: str) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            return self._worker_process.ask(command)

        self._workers_report = await asyncio.to_thread(ask)
        return self._workers_report

    async def _sample(self) -> None:
        shown = -60.0
        while True:
            await asyncio.sleep(self._plan.sample_every_s)
            at_s = monotonic() - self._began
            with suppress(OSError, httpx2.TransportError, KeyError):  # it is being restarted
                row = {"at_s": round(at_s, 1), **self._steady.figures(), **await self._steady.tasks(self._http)}
                row["workers_rss"] = process_figures(self._worker_process.pid)["rss"]
                append(self._file, row)
                if at_s - shown >= 60:
                    shown = at_s
                    words = f"{at_s / 60:5.1f} min  {row['rss'] / 1e6:6.1f} MB  {row['fds']} fds  {row['tasks']} tasks"
                    print(f"{words}  {self._outcomes['ok']:,} calls ok", file=sys.stderr, flush=True)


def append(file: Path, row: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")


async def soak(plan: Plan, file: Path) -> None:
    append(file, {"plan": {name: getattr(plan, name) for name in Plan.__slots__}, "machine": machine.describe()})
    async with AsyncExitStack() as stack:
        run = Soak(plan, file)
        await run.begin(stack)
        append(file, {"result": await run.run()})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=60.0, help="length of the run (default: 60)")
    parser.add_argument("--workers", type=int, default=20, help="CPython workers, of both relays together")
    parser.add_argument("--restarted", type=int, default=5, help="of these, at the relay that is restarted")
    parser.add_argument("--callers", type=int, default=1, help="for each worker")
    parser.add_argument("--no-chromium", action="store_true", help="only CPython workers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, default=FOLDER / "soak.jsonl", help="where samples are written")
    parser.add_argument("--report", action="store_true", help="run nothing: report on the samples of an earlier run")
    parser.add_argument("--plot", type=Path, default=FOLDER / "soak.svg", help="where the plot is written")
    args = parser.parse_args(arguments)
    if not args.report:
        plan = Plan(args.minutes, args.workers, args.restarted, args.callers, not args.no_chromium, args.seed)
        args.samples.parent.mkdir(parents=True, exist_ok=True)
        args.samples.write_text("")
        asyncio.run(soak(plan, args.samples))
    return soak_report.report(args.samples, args.plot)


if __name__ == "__main__":
    sys.exit(main())
