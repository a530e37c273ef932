"""Polling schedule of page modules: often while they are edited, rarely otherwise, and one poller."""

from __future__ import annotations

import asyncio

import pytest

from tabserver.worker.module_watch import BUSY_S, CALM_S, HIDDEN_S, IDLE_S, ModuleWatch, pause_s
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("since_s", "is_visible", "pause"),
    [(0, True, BUSY_S), (300, True, CALM_S), (0, False, HIDDEN_S), (300, False, HIDDEN_S), (7200, True, IDLE_S)],
)
def test_the_pause_grows_while_nothing_happens(since_s: float, is_visible: bool, pause: float) -> None:
    assert pause_s(since_s, is_visible) == pause
    assert pause < 2 or since_s > 1800  # a saved file is in force within 2 s


class Watched:
    def __init__(self) -> None:
        self.polls, self.pauses, self.now, self.is_wanted, self.has_changed = 0, [0.0][:0], 0.0, True, False
        self.polled = asyncio.Event()
        self.go = asyncio.Event()
        self.watch = ModuleWatch(
            self.check,
            now_s=lambda: self.now,
            is_wanted=lambda: self.is_wanted,
            is_visible=lambda: True,
            pause=self.pause,
        )

    async def check(self) -> bool:
        self.polls += 1
        return self.has_changed

    async def pause(self, pause: float) -> None:
        self.pauses.append(pause)
        self.polled.set()
        await self.go.wait()
        self.go.clear()

    async def next_pause(self) -> float:
        await self.polled.wait()
        self.polled.clear()
        return self.pauses[-1]


async def test_there_is_one_poller_until_no_page_wants_it() -> None:
    watched = Watched()
    for _ in range(3):
        watched.watch.used()
    assert await watched.next_pause() == BUSY_S and watched.polls == 1
    watched.now = 300.0
    watched.go.set()
    assert await watched.next_pause() == CALM_S
    watched.has_changed = True
    watched.go.set()
    assert await watched.next_pause() == BUSY_S
    watched.is_wanted = False
    watched.go.set()
    await until(lambda: not watched.watch.is_running)
    assert watched.polls == 3
    watched.is_wanted = True
    watched.watch.used()
    assert await watched.next_pause() == BUSY_S
    watched.is_wanted = False
    watched.go.set()
    await until(lambda: not watched.watch.is_running)


async def test_a_tab_that_is_turned_to_is_served_at_once() -> None:
    watched = Watched()
    watched.watch.used()
    await watched.next_pause()
    watched.now = 4000.0
    watched.go.set()
    assert await watched.next_pause() == IDLE_S
    watched.watch.used()
    assert await watched.next_pause() == BUSY_S and watched.polls == 3
    watched.is_wanted = False
    watched.go.set()
    await until(lambda: not watched.watch.is_running)
