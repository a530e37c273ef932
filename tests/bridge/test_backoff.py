"""Retries: which requests are repeated, how often, and after how long. The clock only records waits, so no test
waits."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tabrelay.bridge.backoff import listen_wait_s, post_wait_s, read_retry_after
from tests.support.bridge_harness import InProcessBridge, QuickClock
from tests.support.fake_upstream import Upstream, cut, result, status


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_a_temporary_failure_is_tried_three_times_in_all(code: int) -> None:
    clock = QuickClock()
    async with Upstream({"tools/list": status(code)}) as server, InProcessBridge(server.url, clock=clock) as bridge:
        error = (await bridge.ask("tools/list"))["error"]
        assert (error["code"], error["data"]["status"]) == (-32001, code)
        assert len(server.all("tools/list")) == 3
        assert clock.sleeps == [0.2, 0.4]


async def test_a_failure_that_passes_is_hidden_from_the_client() -> None:
    on: Any = {"tools/list": [status(503), cut, result("fine")]}
    async with Upstream(on) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask("tools/list"))["result"] == "fine"


@pytest.mark.parametrize("code", [400, 403, 404, 405, 410, 413, 501])
async def test_a_refusal_is_not_tried_again(code: int) -> None:
    clock = QuickClock()
    async with Upstream({"tools/list": status(code)}) as server, InProcessBridge(server.url, clock=clock) as bridge:
        assert (await bridge.ask("tools/list"))["error"]["data"]["status"] == code
        assert (len(server.seen), clock.sleeps) == (1, [])


@pytest.mark.parametrize("method", ["tools/call", "tasks/update", "something/else"])
@pytest.mark.parametrize("handler", [status(503, Retry_After="1"), status(500), cut], ids=["503", "500", "cut"])
async def test_what_may_have_been_done_is_never_sent_twice(method: str, handler: Any) -> None:
    async with Upstream({method: [handler, result("twice")]}) as server, InProcessBridge(server.url) as bridge:
        assert (await bridge.ask(method, {"name": "pay"}))["error"]["code"] in (-32000, -32001)
        assert server.methods == [method]


async def test_what_certainly_did_not_arrive_is_sent_again_even_a_call() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    class Late(QuickClock):
        """The server starts while the bridge waits for the second time."""

        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if len(self.sleeps) == 2:
                await server.__aenter__()

    server = Upstream({"tools/call": result("done")})
    server.port = port
    clock = Late()
    async with InProcessBridge(f"http://127.0.0.1:{port}/mcp", clock=clock) as bridge:
        assert (await bridge.ask("tools/call"))["result"] == "done"
        assert clock.sleeps == [0.2, 0.4]
    await server.__aexit__()


async def test_a_server_that_is_not_there_is_named_with_the_cause_and_later_requests_try_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
    clock = QuickClock()
    async with InProcessBridge(url + "?secret=1", clock=clock) as bridge:
        error = (await bridge.ask("initialize", {}))["error"]
        assert error["code"] == -32000
        assert error["message"] == f"upstream request failed: {url}: Connection refused"
        assert error["data"] == {"reason": "Connection refused", "code": "ECONNREFUSED", "help": "TR501"}
        assert sum(clock.sleeps) >= 0.6 - 1e-9
        server = Upstream({"tools/list": result([])})
        server.port = int(url.rpartition(":")[2].partition("/")[0])
        async with server:
            # The client continued all the same: its session is opened now.
            assert (await bridge.ask("tools/list"))["result"] == []
            assert server.methods == ["initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize(
    ("header", "sleeps"),
    [("3", [3.0, 3.0]), ("60", [60.0, 60.0]), ("0", [0.2, 0.4]), ("61", []), ("soon", [0.2, 0.4])],
)
async def test_retry_after_is_honoured_up_to_a_minute(header: str, sleeps: list[float]) -> None:
    clock = QuickClock()
    on: Any = {"tools/list": status(503, Retry_After=header)}
    async with Upstream(on) as server, InProcessBridge(server.url, clock=clock) as bridge:
        data = (await bridge.ask("tools/list"))["error"]["data"]
        assert clock.sleeps == sleeps
        assert len(server.seen) == len(sleeps) + 1
        assert data.get("retry_after_ms") == (int(header) * 1000 if header.isdigit() else None)


def test_retry_after_may_be_a_date() -> None:
    assert read_retry_after("Fri, 15 Jan 2027 08:00:05 GMT", 1_800_000_000.0) == 5.0
    assert read_retry_after("Fri, 15 Jan 1999 08:00:05 GMT", 1_800_000_000.0) == 0.0
    assert read_retry_after(None, 0) is None


def test_the_waits_are_the_agreed_ones() -> None:
    assert [post_wait_s(n) for n in range(1, 6)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert [listen_wait_s(n, 0.0) for n in range(1, 10)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert [listen_wait_s(n, 1.0) for n in range(1, 10)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
