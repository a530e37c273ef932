"""An upstream server that asks without end: the number of open questions is bounded, and its calls go on."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.shared.exceptions import MCPError

from tabrelay.calls.calls import Call, Pending
from tabrelay.peers.upstreams.connection import CALL, UpstreamConnection
from tabrelay.routing.question_limits import QuestionLimits
from tabrelay.translation.shared_calls import LINGER_S, MAX_LINGERING, SharedCalls, TrackedCall
from tabserver.wire import jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}


class Owner:
    def announced(self, connection: UpstreamConnection, message: dict[str, Any]) -> None: ...

    def logged(self, connection: UpstreamConnection, params: dict[str, Any]) -> None: ...

    def tools_changed(self) -> None: ...

    def wants_log(self, channel: str, params: object) -> bool:
        return True

    def roots(self) -> list[dict[str, Any]]:
        return []


def running(channel: str) -> TrackedCall:
    caller = Caller(Era.LEGACY, "2025-11-25", "me", {"name": "one", "version": "1"}, {"elicitation": {}})
    return TrackedCall(Pending(Call(channel, 1, "tools/call", "{}", caller)), None)


async def ask(connection: UpstreamConnection, call: TrackedCall | None) -> dict[str, Any] | str:
    """The answer, or the reason for its absence."""
    CALL.set(call)
    try:
        return await connection._received_request("elicitation/create", FORM)
    except MCPError as error:
        return str(error.error.message)


async def settled(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.result() for task in tasks if task.done()]


async def test_open_questions_of_an_upstream_during_one_call_are_bounded() -> None:
    connection = UpstreamConnection(Owner(), "integer", QuestionLimits(per_call=3, per_connection=5, size=10_000))
    one, two = running("a"), running("b")
    first = [asyncio.create_task(ask(connection, one)) for _ in range(10)]
    refused = await settled(first)
    assert len(refused) == 7 and all("This call has 3 open questions" in text for text in refused)
    second = [asyncio.create_task(ask(connection, two)) for _ in range(10)]
    refused = await settled(second)
    assert len(refused) == 8 and any("This server has 5 open questions" in text for text in refused)
    # An answer makes room for one more.
    assert connection.answer("a", jsonrpc.result_message("ask-1", {"action": "accept"}))
    await settled(first)
    third = asyncio.create_task(ask(connection, one))
    assert await settled([third]) == []
    for task in (*first, *second, third):
        task.cancel()
    await asyncio.gather(*first, *second, third, return_exceptions=True)
    assert len(connection._open) == 0


async def test_a_bounded_number_of_questions_wait_until_their_call_is_known() -> None:
    connection = UpstreamConnection(Owner(), "integer", QuestionLimits(per_call=3, per_connection=5, size=10_000))
    for number, channel in enumerate("ab"):
        connection._calls.put(number, running(channel))
    tasks = [asyncio.create_task(ask(connection, None)) for _ in range(20)]
    refused = await settled(tasks)
    assert len(refused) == 15 and all("5 questions wait already" in text for text in refused)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_cancelled_calls_are_kept_for_a_while_and_up_to_a_number() -> None:
    roll = SharedCalls()
    for number in range(5 * MAX_LINGERING):
        roll.put(number, running("a"))
        roll.drop(number, now=float(number) / 1000)
    assert len(roll._lingering) == MAX_LINGERING
    roll.put("last", running("b"))
    for number in range(5 * MAX_LINGERING):
        roll.take(number)
    assert roll._lingering == {}
    # Calls that are not known by their ids may still send messages.
    assert roll.only_sender(now=LINGER_S / 2) is None
    speaker = roll.only_sender(now=2 * LINGER_S)
    assert speaker is not None and speaker.channel == "b"
