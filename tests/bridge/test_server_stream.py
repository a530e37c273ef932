"""The server's own stream: when it is opened, how it is resumed, and when the bridge does without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabrelay.bridge.outbound import OutboundLimits
from tests.support.bridge_harness import InProcessBridge, QuickClock, until
from tests.support.fake_upstream import Reply, Upstream, cut, hang, status

NOTICE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def one_notice(reply: Reply) -> None:
    await reply.stream()
    await reply.event(NOTICE, id="g-1")
    await reply.end()


async def stay_open(reply: Reply) -> None:
    await reply.stream()
    await reply.event(NOTICE)
    await hang(reply)


def listening(server: Upstream, **options: Any) -> InProcessBridge:
    return InProcessBridge(server.url, has_listener=True, **options)


async def test_it_is_opened_after_the_handshake_and_its_messages_are_written() -> None:
    async with Upstream({"GET": stay_open}) as server, listening(server) as bridge:
        await bridge.initialize()
        assert await bridge.next() == NOTICE
        assert server.methods == ["initialize", "notifications/initialized", "GET"]
        seen = server.seen[-1]
        assert seen.headers["accept"] == "text/event-stream"
        assert (seen.headers["mcp-session-id"], seen.headers["mcp-protocol-version"]) == ("s-1", "2025-11-25")
        assert "last-event-id" not in seen.headers


async def test_it_is_not_opened_before_the_handshake_or_when_it_is_switched_off() -> None:
    async with Upstream({"GET": stay_open}) as server:
        async with listening(server) as bridge:
            await bridge.ask("initialize", {})
            await bridge.ask("ping")
        async with InProcessBridge(server.url) as bridge:
            await bridge.initialize()
            await bridge.ask("ping")
        assert server.all("GET") == []


async def test_it_is_not_subject_to_the_timeout() -> None:
    may_send = asyncio.Event()

    async def late(reply: Reply) -> None:
        await reply.stream()
        await may_send.wait()
        await reply.event(NOTICE)
        await hang(reply)

    on = {"GET": late, "tools/list": hang}
    async with Upstream(on) as server, listening(server, limits=OutboundLimits(timeout_ms=1000)) as bridge:
        await bridge.initialize()
        await server.until_seen("GET")
        assert "timed out" in (await bridge.ask("tools/list"))["error"]["message"]
        may_send.set()
        assert await bridge.next() == NOTICE
        assert len(server.all("GET")) == 1


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
async def test_after_ten_failures_in_a_row_it_is_given_up(chance: float) -> None:
    clock = QuickClock(chance)
    async with (
        Upstream({"GET": [cut, status(500), status(429), cut]}) as server,
        listening(server, clock=clock) as bridge,
    ):
        await bridge.initialize()
        await server.until_seen("GET", 10)
        await bridge.ask("ping")
        whole = [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert clock.sleeps == [one / 2 + chance * one / 2 for one in whole]
        assert len(server.all("GET")) == 10


async def test_a_stream_that_opened_begins_the_count_again_and_a_clean_end_waits_half_a_second() -> None:
    clock = QuickClock()
    on: Any = {"GET": [status(500), status(500), one_notice, status(500), status(405)]}
    async with Upstream(on) as server, listening(server, clock=clock) as bridge:
        await bridge.initialize()
        assert await bridge.next() == NOTICE
        await server.until_seen("GET", 5)
        await bridge.ask("ping")
        assert clock.sleeps == [0.25, 0.5, 0.5, 0.25]
        assert [seen.headers.get("last-event-id") for seen in server.all("GET")] == [None, None, None, "g-1", "g-1"]


async def test_the_servers_own_pause_is_kept() -> None:
    async def brief(reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"retry: 1234\n\n")
        await reply.end()

    clock = QuickClock()
    async with Upstream({"GET": [brief, status(405)]}) as server, listening(server, clock=clock) as bridge:
        await bridge.initialize()
        await server.until_seen("GET", 2)
        assert clock.sleeps == [1.234]


@pytest.mark.parametrize("code", [400, 403, 404, 405, 406, 409])
async def test_a_refusal_switches_it_off(code: int) -> None:
    async with Upstream({"GET": status(code)}) as server, listening(server) as bridge:
        await bridge.initialize()
        await server.until_seen("GET")
        await bridge.ask("ping")
        assert len(server.all("GET")) == 1


async def test_another_content_type_switches_it_off() -> None:
    async with (
        Upstream({"GET": status(200, b"{}", Content_Type="application/json")}) as server,
        listening(server) as bridge,
    ):
        await bridge.initialize()
        await server.until_seen("GET")
        await bridge.ask("ping")
        assert len(server.all("GET")) == 1


async def test_a_stream_that_was_there_and_whose_session_is_gone_opens_another_session() -> None:
    on: Any = {"GET": [one_notice, status(404), stay_open]}
    async with Upstream(on) as server, listening(server) as bridge:
        await bridge.initialize()
        assert [await bridge.next() for _ in range(2)] == [NOTICE, NOTICE]
        assert server.methods.count("initialize") == 2
        assert server.methods[-1] == "GET"
        assert bridge.is_silent


async def test_it_is_closed_at_the_end() -> None:
    left = asyncio.Event()

    async def stay(reply: Reply) -> None:
        await stay_open(reply)
        left.set()

    async with Upstream({"GET": stay}) as server:
        async with listening(server) as bridge:
            await bridge.initialize()
            await bridge.next()
        await until(left.is_set)
