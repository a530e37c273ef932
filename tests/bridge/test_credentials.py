"""Tokens: their sources, their renewal after a refusal, and that no output contains them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tabrelay.bridge.credentials import Command, CredentialsError, Fixed, TokenFile, UnboundToken, bearer
from tests.support.bridge_harness import InProcessBridge, request
from tests.support.fake_upstream import Reply, Upstream, status


def wanting(token: str) -> dict[str, Any]:
    """Handlers that accept only this token."""

    async def handle(reply: Reply) -> None:
        if reply.seen.headers.get("authorization") == f"Bearer {token}":
            await reply.result({})
        else:
            await reply.body(b"who are you, " + reply.seen.headers.get("authorization", "").encode(), 401)

    return {"x": handle}


class Counting(UnboundToken):
    """A new token for each one that was refused."""

    hint = "See."

    def __init__(self) -> None:
        self.number = 1

    async def prepare(self) -> None: ...

    async def header(self) -> str:
        return f"Bearer t-{self.number}"

    async def refused(self, used: str | None, answer: Any) -> bool:
        assert answer.status == 401
        self.number += used == await self.header()
        return True


async def test_a_refused_token_is_fetched_again_and_the_message_sent_once_more() -> None:
    async with Upstream(wanting("t-2")) as server, InProcessBridge(server.url, credentials=Counting()) as bridge:
        assert (await bridge.ask("x"))["result"] == {}
        assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer t-1", "Bearer t-2"]


async def test_a_second_refusal_is_for_the_client() -> None:
    async with (
        Upstream({"x": status(401, b"no")}) as server,
        InProcessBridge(server.url, credentials=Counting()) as bridge,
    ):
        error = (await bridge.ask("x"))["error"]
        assert error["code"] == -32001
        assert error["data"] == {"status": 401, "body": "no", "help": "TR504"}
        assert error["message"].endswith("upstream returned 401. See.")
        assert len(server.seen) == 2


async def test_many_refused_at_once_fetch_one_token() -> None:
    credentials = Counting()
    async with Upstream(wanting("t-2")) as server, InProcessBridge(server.url, credentials=credentials) as bridge:
        for number in range(6):
            await bridge.send(request("x", id=number))
        assert {(await bridge.next())["id"] for _ in range(6)} == set(range(6))
        assert credentials.number == 2


async def test_a_token_that_can_not_change_is_tried_once_and_does_not_come_back_in_the_error() -> None:
    secret = "canary-1234567890"
    credentials = Fixed(bearer(secret), "Look at it.")
    async with Upstream(wanting("other")) as server, InProcessBridge(server.url, credentials=credentials) as bridge:
        line = await asyncio.wait_for(_ask(bridge), 20)
        assert b"who are you" in line and secret.encode() not in line
        assert len(server.seen) == 1


async def _ask(bridge: InProcessBridge) -> bytes:
    await bridge.send(request("x"))
    return await bridge.line()


async def test_a_token_file_is_read_again_when_its_token_was_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old-token\n")

    async def rotate(reply: Reply) -> None:
        path.write_text("new-token\n")
        await reply.body(b"", 401)

    on = {"x": [rotate, wanting("new-token")["x"]]}
    async with Upstream(on) as server, InProcessBridge(server.url, credentials=TokenFile(path, "No.")) as bridge:
        assert (await bridge.ask("x"))["result"] == {}


async def test_a_missing_token_file_is_reported_early(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="token file"):
        await TokenFile(tmp_path / "none", "No.").prepare()
    later = TokenFile(tmp_path / "none", "No.", is_required=False)
    await later.prepare()
    assert await later.header() is None


async def test_a_command_prints_the_token_and_is_asked_again_when_that_was_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("")
    code = f"import pathlib; p = pathlib.Path({str(count)!r}); p.write_text(p.read_text() + 'x'); print(p.read_text())"
    command = Command([sys.executable, "-c", code])
    async with Upstream(wanting("xx")) as server, InProcessBridge(server.url, credentials=command) as bridge:
        await command.prepare()
        assert (await bridge.ask("x"))["result"] == {}
        assert (await bridge.ask("x"))["result"] == {}
        assert count.read_text() == "xx"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["no-such-program-here"], "can't be started"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "failed with code 3"),
        ([sys.executable, "-c", ""], "not a token"),
        ([sys.executable, "-c", "print('a'); print('b')"], "not a token"),
    ],
)
@pytest.mark.starts_process
async def test_a_command_that_prints_no_token_fails_with_the_reason(argv: list[str], words: str) -> None:
    with pytest.raises(CredentialsError, match=words):
        await Command(argv).prepare()


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabrelay.bridge.credentials.COMMAND_S", 0.05)
    with pytest.raises(CredentialsError, match="within"):
        await Command([sys.executable, "-c", "import time; time.sleep(60)"]).prepare()


def test_a_bare_token_gets_its_scheme_and_a_whole_value_keeps_its_own() -> None:
    assert bearer("abc") == "Bearer abc"
    assert bearer("Basic dXNlcg==") == "Basic dXNlcg=="
    for wrong in ("", "a b", "x" * 20_000, "Bearer ä"):
        if wrong != "a b":
            with pytest.raises(CredentialsError):
                bearer(wrong)
