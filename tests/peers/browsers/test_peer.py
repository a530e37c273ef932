"""BrowserPeer and its endpoint: what happens to calls when sockets and workers connect and disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tabrelay.calls.calls import Call, Pending
from tabrelay.errors import BrowserGone
from tabrelay.peers.browsers.peer import BrowserPeer
from tabserver.wire import frames, jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.events import Received, Welcomed
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tabserver.wire.pending_calls import PendingCalls
from tests.support.link_worker import DONE, SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import pause, until


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path, away_wait_s=5, grace_s=5, in_flight_server=4) as relay:
        yield relay


def never(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """A slow tool."""


async def test_a_call_survives_a_cut_while_the_tool_runs(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        waiting: list[Received[str]] = []
        worker.on_call = lambda worker, event, message: waiting.append(event)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await worker.until(lambda: bool(waiting))
        await worker.cut()
        worker.answer(waiting[0], {"content": []})
        await worker.dial()
        await worker.until(lambda: worker.link.is_up)
        assert [event.resumed for event in worker.seen if isinstance(event, Welcomed)] == [False, True]
        assert (await running).json()["result"] == DONE
        assert len(worker.calls) == 1


async def test_a_call_survives_a_session_that_was_lost_when_the_same_worker_returns(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="same") as worker:
        worker.on_call = never
        running = asyncio.create_task(relay.call("notes", "slow"))
        await worker.until(lambda: bool(worker.calls))
        await worker.cut()
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="same") as again:
        assert (await running).json()["result"]["content"]
        [asked] = [event for event in again.seen if isinstance(event, Received) and "tools/call" in event.payload]
        assert asked.again


async def test_a_large_result_arrives_whole_and_does_not_hold_up_a_small_one(relay: RunningRelay) -> None:
    big = "x" * (8 * 1024 * 1024)

    def answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        text = big if message["params"]["name"] == "big" else "small"
        worker.answer(event, {"content": [{"type": "text", "text": text}]})

    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = answer
        done: list[str] = []

        async def call(name: str) -> str:
            result = (await relay.call("notes", name)).json()["result"]["content"][0]["text"]
            done.append(name)
            return str(result)

        large = [asyncio.create_task(call("big")) for _ in range(2)]
        await worker.until(lambda: len(worker.calls) == 2)
        assert await call("small") == "small"
        assert all(text == big for text in await asyncio.gather(*large))
        assert done[0] == "small"


async def test_a_call_waits_for_a_browser_that_comes_back(relay: RunningRelay) -> None:
    worker = SyntheticWorker(relay.url, relay.token, "notes")
    async with worker:
        await worker.cut()
        running = asyncio.create_task(relay.call("notes", "echo", {"late": True}))
        await worker.dial()
        assert (await running).json()["result"]["content"][0]["text"] == '{"late": true}'


async def test_a_call_in_flight_fails_as_unknown_when_another_worker_takes_over(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes", inst="old") as old:
        old.on_call = never
        running = asyncio.create_task(relay.call("notes", "slow"))
        await old.until(lambda: bool(old.calls))
        async with SyntheticWorker(relay.url, relay.token, "notes", inst="new") as new:
            error = (await running).json()["error"]
            assert (error["code"], error["data"]["delivered"]) == (-31011, "unknown")
            await old.until(lambda: old.close_code is not None)
            assert old.close_code == 4409
            await relay.call("notes", "echo")
            assert len(new.calls) == 1


async def test_a_call_fails_as_unknown_when_the_grace_is_over(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, grace_s=0.05) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            worker.on_call = never
            running = asyncio.create_task(relay.call("notes", "slow"))
            await worker.until(lambda: bool(worker.calls))
        error = (await running).json()["error"]
        assert (error["code"], error["data"]["delivered"], error["data"]["retryable"]) == (-31011, "unknown", False)


async def test_a_deadline_ends_the_call_and_cancels_it(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, call_deadline_s=0.1) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        worker.on_call = never
        error = (await relay.call("notes", "slow")).json()["error"]
        assert (error["code"], error["data"]["reason"]) == (-31012, "timeout")
        await worker.until(lambda: any(getattr(event, "why", None) == "timeout" for event in worker.seen))


async def test_too_many_calls_in_flight_are_busy_and_not_delivered(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        waiting: list[Received[str]] = []
        worker.on_call = lambda worker, event, message: waiting.append(event)
        running = [asyncio.create_task(relay.call("notes", "slow")) for _ in range(4)]
        await worker.until(lambda: len(waiting) == 4)
        error = (await relay.call("notes", "slow")).json()["error"]
        assert (error["code"], error["data"]["delivered"], error["data"]["retryable"]) == (-31013, "no", True)
        for event in waiting:
            worker.answer(event, {"content": []})
        await worker.flush()
        assert {response.status_code for response in await asyncio.gather(*running)} == {200}


@pytest.mark.parametrize(
    "text", ['{"jsonrpc": "2.0", "id": 1,\n"result": {}}', "not json", '{"jsonrpc":"2.0","id":99,"result":{}}', "[]"]
)
async def test_an_answer_that_is_none_becomes_an_error_and_the_link_goes_on(relay: RunningRelay, text: str) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.on_call = lambda worker, event, message: worker.send_text(event, Kind.RES, text)
        error = (await relay.call("notes", "bad")).json()["error"]
        assert error["data"]["reason"] == "bad_answer"
        worker.on_call = SyntheticWorker.echo
        assert (await relay.call("notes", "echo")).json()["result"]["content"]


async def test_a_result_for_a_call_that_a_browser_does_not_own_is_ignored(relay: RunningRelay) -> None:
    async with (
        SyntheticWorker(relay.url, relay.token, "notes") as notes,
        SyntheticWorker(relay.url, relay.token, "evil") as evil,
    ):
        waiting: list[Received[str]] = []
        notes.on_call = lambda worker, event, message: waiting.append(event)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await notes.until(lambda: bool(waiting))
        evil.send(waiting[0], Kind.RES, jsonrpc.result_message(1, {"content": [], "forged": True}))
        await evil.flush()
        assert (await relay.call("evil", "echo")).status_code == 200
        notes.answer(waiting[0], {"content": []})
        await notes.flush()
        assert (await running).json()["result"] == DONE


async def test_a_name_held_by_another_principal_is_refused_before_the_handshake(relay: RunningRelay) -> None:
    async with SyntheticWorker(relay.url, relay.token, "notes"):
        other = relay.tokens.issue_for_page(None, None, ("serve",))
        with pytest.raises(InvalidStatus) as refused:
            await SyntheticWorker(relay.url, other, "notes", inst="w2").dial()
        assert refused.value.response.status_code == 403
        assert (await relay.call("notes", "echo")).json()["result"]


@pytest.mark.parametrize("name", ["-notes", ".well-known", "favicon.ico", "a%2Fb", "x" * 65, "SSE"])
async def test_reserved_and_malformed_names_are_refused(relay: RunningRelay, name: str) -> None:
    with pytest.raises(InvalidStatus):
        await SyntheticWorker(relay.url, relay.token, name).dial()


async def test_a_first_frame_that_is_no_hello_ends_the_socket(relay: RunningRelay) -> None:
    worker = SyntheticWorker(relay.url, relay.token, "notes")
    worker.link.connected = lambda now: None  # type: ignore[method-assign]
    await worker.dial()
    assert worker._socket is not None
    await worker._socket.send('{"t":"ack","a":0}')
    await worker.until(lambda: worker.close_code is not None)
    assert worker.close_code == 4400


async def test_a_known_name_stays_known_over_a_restart(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, away_wait_s=0.1) as relay:
        assert (await relay.call("notes", "echo")).status_code == 404
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            await worker.until(lambda: any('"tools/list"' in getattr(e, "payload", "") for e in worker.seen))
            async with asyncio.timeout(60):
                while not (await relay.http.get("/-/status")).json()["servers"][0]["tools"]:
                    await pause()
    async with RunningRelay(tmp_path, away_wait_s=0.1) as relay:
        assert (await relay.call("notes", "echo")).json()["error"]["code"] == -31010
        listed = await relay.http.post("/notes", **relay.modern("tools/list"))
        assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["echo"]


class RecordingSocket:
    """Records what the peer writes."""

    def __init__(self) -> None:
        self.headers: list[str] = []

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None:
        self.headers += [header for header, _ in frames]

    def close(self, code: int, reason: str) -> None:
        self.headers.append(f"closed {code}")


def peer_on(
    link: Link[Any],
    on_up: Callable[[BrowserPeer], None] = lambda peer: None,
    *,
    principal: str = "token:x",
    origin: str | None = None,
) -> BrowserPeer:
    return BrowserPeer(
        "notes",
        inst="w1",
        principal=principal,
        origin=origin,
        link=link,
        pending_calls=PendingCalls(),
        budget=MemoryBudget(1024),
        in_flight_limit=1,
        max_values=200_000,
        on_up=on_up,
        on_away=lambda peer: None,
        on_gone=lambda peer: None,
    )


async def test_a_worker_of_another_principal_or_origin_has_another_identity_whatever_it_calls_itself() -> None:
    def identity(**more: Any) -> str:
        return peer_on(Link.accepter(Terms("sid", "epoch", "build"), Limits()), **more).identity

    own = identity()
    assert own == identity()
    assert own not in (identity(principal="token:y"), identity(origin="http://localhost:1"))


HELLO = frames.hello_header(Greeting("notes", "w1", "build"), None, 0)


class FailsOnce(Link[Any]):
    """One timer of this link fails, for any reason."""

    failures = 0

    def handle_timer(self, now: float) -> None:
        if not self.failures:
            self.failures += 1
            raise KeyError("ack")
        super().handle_timer(now)


async def test_a_link_whose_timer_failed_sends_heartbeats_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    link: Link[Any] = Link.accepter(Terms("sid", "epoch", "build"), Limits(heartbeat_s=0.01))
    link.__class__ = FailsOnce
    peer, socket = peer_on(link), RecordingSocket()
    peer.attach(socket, HELLO)
    await until(lambda: len([header for header in socket.headers if '"ack"' in header]) >= 3)
    assert "a timer of the link failed" in caplog.text
    peer.retire(frames.CLOSE_RESTART, "enough")


async def test_an_event_that_fails_does_not_take_those_behind_it_along(caplog: pytest.LogCaptureFixture) -> None:
    def fail(peer: BrowserPeer) -> None:
        raise RuntimeError("no room")

    link: Link[Any] = Link.accepter(Terms("sid", "epoch", "build"), Limits(heartbeat_s=0.01))
    peer, socket = peer_on(link, on_up=fail), RecordingSocket()
    peer.attach(socket, HELLO)
    await until(lambda: len(socket.headers) >= 3)  # the welcome, and heartbeats after it
    assert "could not handle Welcomed" in caplog.text
    peer.retire(frames.CLOSE_RESTART, "enough")


async def test_calls_that_find_no_room_in_a_new_session_of_their_worker_fail_with_an_unknown_outcome() -> None:
    """The worker may have run them in the previous session. The others are sent again."""
    link: Link[Any] = Link.accepter(Terms("sid", "epoch", "build"), Limits(replay_messages=1))
    peer, socket = peer_on(link), RecordingSocket()
    peer._pending_calls.claim(peer.identity)
    caller = Caller(Era.MODERN, "2026-07-28", "token:x")
    calls = [Pending(Call(f"c-{number}", number, "tools/call", "{}", caller)) for number in range(3)]
    for pending in calls:
        peer._pending_calls[pending.call.channel, pending.call.id] = pending
    peer.attach(socket, HELLO)
    assert [pending.is_done for pending in calls] == [False, True, True]
    assert list(peer._pending_calls.values()) == calls[:1]
    assert len([header for header in socket.headers if '"d":1' in header]) == 1
    for pending in calls[1:]:
        with pytest.raises(BrowserGone) as caught:
            await pending.next()
        assert caught.value.delivered == "unknown"
    peer.retire(frames.CLOSE_RESTART, "enough")


def test_a_timer_that_is_due_at_once_does_not_trip_over_uvloop() -> None:
    """uvloop turns such a timer into a plain callback, whose handle has no due time."""
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> list[str]:
        peer = peer_on(Link.accepter(Terms("sid", "epoch", "build"), Limits(heartbeat_s=0.0)))
        socket = RecordingSocket()
        peer.attach(socket, HELLO)
        peer.receive_frame(socket, '{"t":"ack","a":0}', None)
        peer.retire(frames.CLOSE_RESTART, "enough")
        return socket.headers

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scenario())[-1] == "closed 1012"
