"""The conductor's client of the relay: without a relay, with one that refuses, and with another program at its port."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from tabrelay.acp import relay_client
from tabrelay.acp.relay_client import RelayClient
from tabrelay.admission.tokens import Tokens
from tests.support.acp_harness import ConductorHarness
from tests.support.acp_relay import META, Tools, scene, whose
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_without_a_relay_the_agent_works_and_the_user_gets_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ConductorHarness(RelayClient(Path("/nowhere"), lambda: "http://127.0.0.1:1")) as stage:
        await stage.greet()
        assert warnings(caplog) == [], "an editor that only looks whether the agent is there needs no relay"
        assert await stage.open() == []
        assert await stage.open(session="s2", id=2) == []
    [said] = warnings(caplog)
    assert said.startswith("No relay answers at http://127.0.0.1:1") and "tabrelay demo" in said


async def test_a_relay_that_is_started_later_serves_the_sessions_that_come_after(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1"
    async with ConductorHarness(RelayClient(tmp_path, lambda: url)) as stage:
        await stage.greet()
        assert await stage.open() == []
        async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Tools()):
            url = relay.url
            await relay.has_read("notes")
            [server] = await stage.open(session="s2", id=2)
            plug = await stage.plug(server)
            plug.send(id=1, method="tools/call", params={"name": "whose", "arguments": {}, "_meta": META})
            assert whose(await plug.next())["session"] == "s2"


async def test_a_relay_that_does_not_know_the_token_is_reported_as_refusing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        scene(tmp_path / "one") as set,
        ConductorHarness(RelayClient(tmp_path / "two", lambda: set.relay.url)) as stage,
    ):
        Tokens(tmp_path / "two").master()
        await stage.greet()
        assert await stage.open() == []
        assert "does not know this token" in caplog.text and "--home" in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        "5",
        "[]",
        "no JSON",
        "{}",
        '{"servers": 5}',
        '{"servers": [1, null, {}, {"kind": "browser", "state": "online"}]}',
    ],
)
async def test_another_program_at_the_relays_port_does_no_harm(tmp_path: Path, said: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said.encode()))
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, ConductorHarness(RelayClient(tmp_path, lambda: f"http://127.0.0.1:{port}")) as stage:
        await stage.greet()
        assert await stage.open() == []


async def test_a_program_at_the_relays_port_that_sends_nothing_delays_a_session_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_client, "REQUEST_S", 0.2)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        with suppress(ConnectionError):
            while True:  # never so slow that the wait for the next byte would end
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

    other = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, ConductorHarness(RelayClient(tmp_path, lambda: f"http://127.0.0.1:{port}")) as stage:
        await stage.greet()
        assert await stage.open() == []
