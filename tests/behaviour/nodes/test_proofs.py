"""Proofs of the relay and of its clients where several relays share a bus, and where they do not."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tabrelay.calls import proof
from tabrelay.calls.proof import Challenge, ClientProof, Unproven, key_of, serve_key
from tabserver.wire.events import Received
from tabserver.wire.frames import SUBPROTOCOL
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.relay_pair import Pair
from tests.support.running_relay import RunningRelay


async def prove(relay: RunningRelay, key: bytes) -> ClientProof:
    challenge = Challenge(key, f"127.0.0.1:{relay.port}")
    answer = await relay.http.post(proof.ROUTE, content=challenge.body(), headers={"Authorization": ""})
    return challenge.verify(answer.status_code, answer.content)


class ProvenWorker(SyntheticWorker):
    """Presents a proof, and sends nothing before the relay has signed the socket."""

    def __init__(self, relay: RunningRelay, shown: ClientProof) -> None:
        super().__init__(relay.url, shown.text(), "notes", inst="same")
        self._shown = shown

    async def dial(self) -> None:
        offered = [Subprotocol(SUBPROTOCOL), Subprotocol(bearer(self.token))]
        self._socket = await connect(self.url, subprotocols=offered, proxy=None, max_size=None)
        assert await self._socket.recv() == self._shown.socket_signature()
        self.link.connected(self._now())
        self._reader = asyncio.create_task(self._read(self._socket))
        await self.flush()


async def test_a_worker_moves_to_another_relay_of_its_bus_with_the_proof_that_it_has(pair: Pair) -> None:
    """Its call continues there: it is the same worker, principal and name."""
    shown = await prove(pair.a, serve_key(key_of(pair.a.token)))
    waiting: list[Received[str]] = []

    def hold(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        waiting.append(event)

    async with ProvenWorker(pair.a, shown) as here:
        here.on_call = hold
        running = asyncio.create_task(pair.a.call("notes", "echo", {"x": 1}))
        await here.until(lambda: bool(waiting))
        await here.cut()
    async with ProvenWorker(pair.b, shown):
        assert (await running).json()["result"]["content"][0]["text"] == '{"x": 1}'
        for relay in (pair.a, pair.b):
            answer = await relay.call("notes", "echo", {"x": 2})
            assert answer.json()["result"]["content"][0]["text"] == '{"x": 2}'


async def test_relays_that_share_a_token_and_no_bus_want_a_proof_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir(mode=0o700)
    async with RunningRelay(tmp_path / "one") as one:
        shutil.copy2(tmp_path / "one" / "token", tmp_path / "two" / "token")
        async with RunningRelay(tmp_path / "two") as two:
            assert one.token == two.token
            key = serve_key(key_of(one.token))
            shown = await prove(one, key)
            async with ProvenWorker(one, shown):
                with pytest.raises(InvalidStatus) as refused:
                    await ProvenWorker(two, shown).dial()
                assert refused.value.response.status_code == 401
            async with ProvenWorker(two, await prove(two, key)):
                assert (await two.call("notes", "echo")).status_code == 200


async def test_relays_with_tokens_of_their_own_sign_nothing_for_each_others_clients(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path / "one") as one, RunningRelay(tmp_path / "two") as two:
        with pytest.raises(Unproven, match="does not know this token"):
            await prove(two, serve_key(key_of(one.token)))
