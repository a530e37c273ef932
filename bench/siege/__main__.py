"""Cost of each attack: one after the other, each against a separate relay with the product's own limits.

During an attack, the relay's resident memory is sampled, and a well-behaved request is repeated, which must be
answered. Then comes a second round, of two attackers at once. An attack fails the run if memory grows by more than its
limits allow, if twice the attack takes much more than the attack did, or if a well-behaved request gets no answer; the
attack on the state of sessions also if the relay writes much more than one state file every two seconds. It stays on
loopback and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import httpx2

from bench import machine, stage
from bench.siege import browsers, clients, connections, hosted, tables
from bench.siege.target import Target
from bench.table import table
from tabrelay.admission.oauth_keys import PAUSE_S
from tabrelay.config.settings import MIB, Settings

LIMITS = Settings()
SLACK = 48 * MIB  # allocator, copied kernel buffers, Python's own growth
# How much the same figure varies. Two attackers may also come closer to a limit than one.
AGAIN = 24 * MIB
# What links hold, and what their sockets are just reading.
LINKS = LIMITS.replay_budget + LIMITS.body_budget
# A message of the largest permitted number of values, while it is checked.
VALUES = 128 * MIB
BROWSER = 48 * 1024  # memory of an idle one
# Incomplete frames, which have one limit for all browsers, and these browsers.
FRAMES = LIMITS.body_budget + LIMITS.max_connections * BROWSER
PROBE_S = 5.0
# Bytes per second. A state file of this size is written every two seconds at most, a smaller one more often.
WRITES = LIMITS.max_subscribed
PLAIN = {"TABRELAY_IN_FLIGHT_SERVER": "64", "TABRELAY_IN_FLIGHT_CALLER": "16", "TABRELAY_RATE_S": "200"}

Attack = Callable[[Target, float], Awaitable[None]]
# The permitted growth of each, beside the slack: the limit that applies.
ATTACKS: dict[str, tuple[Attack, str, int]] = {
    "1,500 silent connections": (connections.silent, "`max_connections`", 0),
    "900 headers that never end": (
        connections.half_headers,
        "`max_header`, `header_deadline_s`",
        900 * LIMITS.max_header,
    ),
    "headers of 1 MiB": (connections.large_headers, "`max_header`", 0),
    "200 bodies of 4 MiB that never end": (
        connections.large_bodies,
        "`body_budget`, `body_deadline_s`",
        LIMITS.body_budget,
    ),
    "900 bodies without a token": (connections.refused_bodies, "nothing is kept", 0),
    "chunked bodies without end": (connections.endless_bodies, "`max_body`", LIMITS.body_budget),
    "trailers without end": (connections.endless_trailers, "`max_header`", 20 * LIMITS.max_header),
    "60 kB of requests sent ahead, 150 times": (connections.sent_ahead, "`max_ahead`", 150 * LIMITS.max_ahead),
    "1,030 half-sent requests without a token": (connections.half_sent, "`max_connections`", 0),
    "files that no client reads, 900 times": (connections.unread_pages, "`max_connections`", 0),
    "pages that ask to be paired": (connections.asking, "three at a time", 0),
    "reports of the content security policy": (connections.reports, "16 KiB, 20 a minute", 400 * 64 * 1024),
    "wrong tokens": (connections.wrong_tokens, "nothing is kept", 0),
    "challenges without a token": (connections.challenges, "nothing is kept", 0),
    "access tokens with ever new key names": (hosted.unknown_keys, "keys are asked for every 10 s", 0),
    "requests as fast as possible": (clients.requests, "`rate_s`", 0),
    "JSON that nests 2 million levels": (clients.deep_json, "`max_json_depth`", LIMITS.body_budget),
    "calls of half a million objects": (clients.many_values, "`max_values`, `max_body`", VALUES),
    "300 calls of 1 MB without an answer": (
        clients.in_flight,
        "`call_budget`, `body_budget`",
        # Those that have begun, and those that are being read meanwhile.
        LIMITS.call_budget + LIMITS.body_budget,
    ),
    "900 listeners": (clients.listeners, "512 for each server", 0),
    "subscriptions of one session": (clients.subscriptions, "256 for each session, 16 MiB for all", 0),
    "idle sessions": (clients.sessions, "`max_sessions_token`", LIMITS.max_sessions_token * 4096),
    "tabs with ids of 1 MB, pinned by ever new clients": (tables.pins, "64 characters", LIMITS.max_message),
    "state of 32 sessions, changed all the time": (tables.states, "`max_subscribed`", LIMITS.max_subscribed),
    # The lists are read, checked and kept: while one is read, it exists as text and as values.
    "40 names with lists of small values": (
        tables.catalogues,
        "`catalogue_budget`, `max_list`",
        LIMITS.catalogue_budget + LIMITS.body_budget,
    ),
    "questions of a plain page without end": (
        tables.questions,
        "`max_questions_server`, `question_budget`",
        LIMITS.question_budget + LIMITS.body_budget,
    ),
    "240 streams that no client reads": (clients.unread_streams, "64 MiB for all", 64 * MIB),
    "60 sessions' streams that no client reads": (clients.unread_sessions, "64 MiB for all", 64 * MIB),
    "results of 15 MB that no client reads": (clients.unread_answers, "`replay_budget`", LIMITS.replay_budget),
    "ever new server names": (browsers.names, "`max_servers`", 0),
    "messages that never end, from 32 browsers": (browsers.unfinished, "`replay_budget`, `body_budget`", LINKS),
    "the same, of characters of four bytes": (browsers.wide, "`replay_budget`, `body_budget`", LINKS),
    "frames that never end, from 300 browsers": (browsers.half_frames, "`body_budget`", FRAMES),
    "frames that never end, from 1,100 browsers": (browsers.many_half_frames, "`body_budget`", FRAMES),
    "frames in fragments of a byte, and of none": (browsers.tiny_fragments, "`max_part`", 0),
    "messages of two million objects": (browsers.values, "`max_values`", VALUES),
    "tool lists of 1.9 million numbers": (browsers.numbers, "`max_values`", VALUES),
    "tool lists of as many values as may be": (browsers.most_values, "`max_values`", VALUES),
    # Each list is 7 MB on its way: until all of it has arrived and was read, it counts as held by the link.
    "5,000 poisoned tools, ever new": (
        browsers.changing_lists,
        "`max_tools`, `max_list`, `replay_budget`",
        LIMITS.replay_budget,
    ),
    # The browsers that were disconnected have calls that wait for them.
    "browsers that never read": (
        browsers.unread_sockets,
        "`replay_budget`, `send_timeout_s`, `call_budget`",
        LIMITS.replay_budget + LIMITS.call_budget,
    ),
}


async def honest(target: Target, until: float, waits: list[float]) -> None:
    """A well-behaved client that requests the relay's health. A request that is refused or takes too long counts as
    unanswered; the reason is written to stderr."""
    while monotonic() < until:
        began = monotonic()
        try:
            async with httpx2.AsyncClient(base_url=target.url, trust_env=False, timeout=PROBE_S) as http:
                (await http.get("/-/healthz")).raise_for_status()
                waits.append(monotonic() - began)
        except httpx2.HTTPError as error:
            print(f"no answer after {monotonic() - began:.2f} s: {error!r}", file=sys.stderr)
            waits.append(PROBE_S)
        await asyncio.sleep(0.1)


async def watch(server: stage.Child, until: float, sizes: list[int]) -> None:
    while monotonic() < until:
        sizes.append(server.rss())
        await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Round:
    """Cost of one round. `peak`: largest resident size; `held`: the part in use shortly before the end."""

    peak: int
    held: int
    wait_s: float
    written: int = 0  # bytes, since the relay started


async def besiege(server: stage.Child, target: Target, name: str, seconds: float, attackers: int) -> Round:
    """The attack runs in other processes: a busy attacker can't measure how long others wait."""
    command = [sys.executable, "-m", "bench.siege", "--attack", name, target.url, "--seconds", str(seconds)]
    env = {**os.environ, stage.TOKEN: target.token}
    attack = [await asyncio.create_subprocess_exec(*command, cwd=stage.ROOT, env=env) for _ in range(attackers)]
    until = monotonic() + seconds
    sizes: list[int] = []
    waits: list[float] = []
    await asyncio.gather(honest(target, until, waits), watch(server, until, sizes))
    said = await asyncio.to_thread(server.ask)
    for attacker in attack:
        if await attacker.wait():
            raise SystemExit(f"The attack itself failed: {name}")
    return Round(max(sizes), said["held"], max(waits, default=PROBE_S), said["written"])


async def _rounds(server: stage.Child, name: str, seconds: float) -> tuple[int, list[Round]]:
    """Memory before, and the cost of an attack and then of twice that attack."""
    parts = urlsplit(server.said["url"])
    target = Target(parts.hostname or "", parts.port or 0, server.said["token"])
    await honest(target, monotonic() + 0.3, [])
    before = (await asyncio.to_thread(server.ask))["held"]
    return before, [await besiege(server, target, name, seconds, attackers) for attackers in (1, 2)]


def _leave_empty(home: Path) -> None:
    """A relay that starts for the first time."""


def measure(name: str, seconds: float) -> list[str]:
    """One row of the table; its last cell shows whether all limits hold."""
    attack, limit, allowed = ATTACKS[name]
    authority = hosted.Authority()
    is_hosted = attack is hosted.unknown_keys
    with contextlib.ExitStack() as stack:
        flags = stack.enter_context(authority.running()) if is_hosted else ()
        flags = ("--plain", tables.PLAIN_SERVER) if attack is tables.questions else flags
        # Within the rate limit, a token takes minutes to reach the limit of subscriptions.
        prepare = tables.fill_states if attack is tables.states else _leave_empty
        server = stack.enter_context(
            stage.lone_relay(env=PLAIN, flags=flags, program="bench.siege.besieged", prepare=prepare)
        )
        before, (once, twice) = asyncio.run(_rounds(server, name, seconds))
    wait_s = max(once.wait_s, twice.wait_s)
    # For its metadata and for its keys, once for each pause and once more.
    has_asked_little = authority.asked <= 2 * (2 * seconds / PAUSE_S + 2)
    again = max(AGAIN, (allowed + SLACK) // 3)
    is_bounded = max(once.peak, twice.peak) - before <= allowed + SLACK and twice.peak - once.peak <= again
    has_written_little = attack is not tables.states or twice.written <= WRITES * 2 * seconds
    is_good = is_bounded and wait_s < PROBE_S and has_asked_little and has_written_little
    sizes = (once.peak - before, twice.peak - before, allowed + SLACK, max(once.held, twice.held) - before)
    figures = [f"{size / MIB:,.0f}" for size in sizes]
    if attack is tables.states:
        print(f"{name}: wrote {twice.written / MIB / 2 / seconds:,.1f} MiB in a second", file=sys.stderr)
    return [name, limit, *figures, f"{wait_s * 1000:,.0f}", "pass" if is_good else "FAIL"]


async def _for(attack: Attack, target: Target, seconds: float) -> None:
    # It ends by itself, whatever it waits for.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds + 5):
            await attack(target, monotonic() + seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each attack")
    parser.add_argument("--only", default="", metavar="WORDS", help="only attacks with these words in their name")
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "URL"), help="only do that, and measure nothing")
    args = parser.parse_args()
    if args.attack:
        parts = urlsplit(args.attack[1])
        target = Target(parts.hostname or "", parts.port or 0, os.environ[stage.TOKEN])
        asyncio.run(_for(ATTACKS[args.attack[0]][0], target, args.seconds))
        return 0
    rows = []
    for name in ATTACKS:
        if args.only in name:
            rows.append(measure(name, args.seconds))
            # At once: an interrupted run leaves its results so far.
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(machine.describe()), end="\n\n")
    heads = ["grew by (MiB)", "twice the attack", "allowed", "in use at the end", "longest wait (ms)", ""]
    print(table(["attack", "limit at work", *heads], rows))
    return 1 if any(row[-1] != "pass" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
