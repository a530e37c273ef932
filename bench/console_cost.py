"""Cost of an open console: processor time and rate of the relay's hop with one, beside the same relay without any.

Each round measures both, in alternating order; the ratio is taken within a round. Above 1, the console costs something.
What the capture code costs while no console is open is measured between two revisions: `bench.compare REV`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

from bench import hop, machine, stage
from bench.compare.pairs import shown
from bench.stage import TOKEN, Child, Pair
from bench.table import table

LEAST_ROUNDS = 15
LINGER_S = 0.05
# After this the relay captures no more calls of a console that was closed.
PAUSE_S = 0.5


@contextlib.contextmanager
def console(pair: Pair, cores: set[int]) -> Iterator[Child]:
    base = str(pair.server.said["base_url"])
    child = Child("bench.console_reader", base, on=cores, env={**os.environ, TOKEN: pair.token})
    # It must not delay the load generator, with which it shares a core: that would change the relay's batches.
    os.setpriority(os.PRIO_PROCESS, child.pid, hop.LAST)
    try:
        yield child
    finally:
        child.stop()


def run(callers: Sequence[int], rounds: int, seconds: float, pin: bool) -> int:
    rounds = max(rounds, LEAST_ROUNDS)
    rows = []
    failures = 0
    with stage.relay(pin, {"TABRELAY_CONSOLE_LINGER_S": str(LINGER_S)}) as pair:
        others = stage.cores(pin)[1]
        for count in callers:
            load = hop.Load(count)
            closed, opened = hop.Candidate("closed", pair, "modern"), hop.Candidate("open", pair, "modern")
            cost: list[float] = []
            rate: list[float] = []
            rates: list[float] = []
            captured: list[float] = []
            for round in range(rounds):
                got: dict[str, hop.Sample] = {}
                for candidate in (closed, opened) if round % 2 else (opened, closed):
                    if candidate is closed:
                        time.sleep(PAUSE_S)
                        got["closed"] = hop.measure(closed, load, round, seconds, pin)
                        continue
                    with console(pair, others) as reader:
                        began = time.monotonic()
                        got["open"] = hop.measure(opened, load, round, seconds, pin)
                        captured.append(reader.ask()["rows"] / (time.monotonic() - began))
                cost.append(got["open"].server_us / got["closed"].server_us)
                rate.append(got["closed"].calls_per_s / got["open"].calls_per_s)
                rates.append(got["closed"].calls_per_s)
                failures += got["open"].failures + got["closed"].failures
                print(f"{load.label}, round {round + 1} of {rounds}", file=sys.stderr, flush=True)
            rows.append([load.label, f"{median(rates):,.0f}", shown(cost), shown(rate), f"{median(captured):,.0f}"])
    print("\n".join(machine.describe()), f"{rounds} paired rounds of {seconds:g} s", sep="\n", end="\n\n")
    print(table(["", "calls/s closed", "CPU per call, open × closed", "time per call", "rows/s of the stream"], rows))
    return 1 if failures else 0
