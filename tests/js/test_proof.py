"""proof.js matches the relay's proof.py, and a worker's socket counts as open only when the relay has signed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tabrelay.calls.principal import CALL, MANAGE, SERVE
from tabrelay.server.runner import bind
from tests.support.nodejs import node
from tests.support.paths import SUPPORT
from tests.support.port_squatter import squatter
from tests.support.running_relay import RunningRelay

SCRIPT = SUPPORT / "proof.mjs"


async def run(*arguments: str) -> Any:
    ended = await node(SCRIPT, *arguments)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


async def test_the_relay_takes_the_proofs_of_pages_and_workers_for_what_each_may_do(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        token = relay.tokens.issue_for_page(relay.url, None, [SERVE, MANAGE])
        proofs = await run("prove", relay.url, token)
        page = relay.tokens.identify(proofs["page"]["bearer"], relay.url)
        worker = relay.tokens.identify(proofs["worker"]["bearer"], relay.url)
        assert page is not None and page.scopes == {SERVE, MANAGE}
        assert worker is not None and worker.scopes == {SERVE}
        caller = relay.tokens.identify(proofs["call"]["bearer"], relay.url)
        assert caller is not None and caller.scopes == {CALL} and caller.origin == relay.url
        assert relay.tokens.socket_signature(proofs["worker"]["bearer"]) == proofs["worker"]["socket"]


@pytest.mark.parametrize(
    ("mode", "why"), [("forge", "unproven"), ("old", "unproven"), ("unknown", "unauthorized"), ("mirror", "unproven")]
)
async def test_another_program_is_distinguished_from_the_relay(tmp_path: Path, mode: str, why: str) -> None:
    async with RunningRelay(tmp_path) as relay:
        with bind("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        async with squatter(port, tmp_path, mode, relay.port) as squat:
            outcomes = await run("prove", f"http://127.0.0.1:{port}", relay.token)
        for outcome in outcomes.values():
            assert outcome["why"] == why and "evil" not in outcome["message"]
        squat.assert_no_secret(relay.token)
        assert squat.shown() == []


@pytest.mark.parametrize(
    ("frames", "log"),
    [
        ([], ["-"]),
        (["signature"], ["-", "opened"]),
        (["signature", '{"t":"ack","a":0}'], ["-", "opened", "received"]),
        (['{"t":"welcome"}'], ["-", "close"]),
        (['{"t":"welcome"}', "x"], ["-", "close", "close"]),
    ],
)
async def test_a_socket_is_open_when_the_relay_has_signed_it_and_sends_nothing_before(
    frames: list[str], log: list[str]
) -> None:
    assert await run("socket", json.dumps(frames)) == log
