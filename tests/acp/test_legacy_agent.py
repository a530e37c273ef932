"""Agent of the handshake era: notifications of its server wait until it reads."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tabrelay.acp.envelope_requests import EnvelopeOutcome, OnNotification
from tabrelay.acp.legacy_agent import LegacyAgent
from tabrelay.acp.message import AcpMessage
from tabserver.wire import methods
from tests.support.waiting import until

DISCOVERED = '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}'
PARAMS = b'{"protocolVersion":"2025-06-18","capabilities":{}}'
INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}' % PARAMS


class FakeEnvelopes:
    """A server that answers `server/discover` only."""

    def __init__(self) -> None:
        self.started: dict[str, OnNotification] = {}

    async def start(self, id: str, method: str, params: str | None, on_notification: OnNotification) -> Any:
        self.started[method] = on_notification
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if method == methods.SERVER_DISCOVER:
            answered.set_result(None)
        return SimpleNamespace(sent=SimpleNamespace(answer=answered))

    async def outcome(self, request: Any) -> EnvelopeOutcome:
        await request.sent.answer
        return EnvelopeOutcome(result=DISCOVERED)

    async def cancel(self, request: Any) -> None: ...


async def test_the_next_notification_is_read_when_the_agent_has_read_the_one_before() -> None:
    envelopes: Any = FakeEnvelopes()
    written: list[bytes] = []
    room = asyncio.Event()

    async def write(line: bytes) -> None:
        if b"list_changed" in line:
            await room.wait()
        written.append(line)

    agent = LegacyAgent(envelopes, write)
    await agent.initialize(AcpMessage.read(INITIALIZE))
    await until(lambda: methods.SUBSCRIPTIONS_LISTEN in envelopes.started and bool(written))
    told = [
        asyncio.create_task(envelopes.started[methods.SUBSCRIPTIONS_LISTEN](methods.TOOLS_LIST_CHANGED, None))
        for _ in range(3)
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not told[0].done() and len(written) == 1
    room.set()
    await asyncio.gather(*told)
    assert [b"list_changed" in line for line in written] == [False, True, True, True]
    await agent.close()
