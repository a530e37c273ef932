"""`--bus` and `--workers` on the command line: several processes on one port, and refused combinations."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.config.settings import ConfigError, Settings
from tests.support.demo import Demo
from tests.support.link_worker import SyntheticWorker
from tests.support.nats_server import NatsServer
from tests.support.running_relay import ACCEPT, modern
from tests.support.waiting import until


@pytest.fixture(scope="module")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


def refused(home: Path, *flags: str, **environment: str) -> str:
    """The command's error when it does not start."""
    command = [sys.executable, "-m", "tabrelay", "serve", "--port", "0", "--json", "--home", str(home), *flags]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)
    assert done.returncode != 0
    return done.stderr


def test_workers_without_a_bus_are_refused_with_the_reason(tmp_path: Path) -> None:
    said = refused(tmp_path, "--workers", "2")
    assert "--workers needs --bus" in said and "only over a bus" in said


@pytest.mark.parametrize("url", ["nats://ada:secret@127.0.0.1:4222", "nats://secret@127.0.0.1:4222"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    said = refused(tmp_path, "--bus", url)
    assert "TABRELAY_BUS" in said and "--bus-credentials" in said and "secret" not in said


def test_a_bus_that_is_no_address_of_nats_is_refused(tmp_path: Path) -> None:
    assert "nats://HOST" in refused(tmp_path, "--bus", "redis://127.0.0.1")
    assert "there is no file" in refused(tmp_path, "--bus", "nats://127.0.0.1", "--bus-credentials", "/nowhere")
    (tmp_path / "empty.creds").touch()
    said = refused(tmp_path, "--bus", "nats://127.0.0.1", "--bus-credentials", str(tmp_path / "empty.creds"))
    assert "no credentials file of NATS" in said and "Traceback" not in said


# With the characters that end a part of an address, or all of it, or that no address may contain.
PASSWORDS = ["hun/ter2", "hun,ter2", "hun#ter2", "hun?ter2", "hun[ter2", "[hunter2]", "hun\u2100ter2", "77,hunter2"]


@pytest.mark.parametrize("user", ["ada:", ""], ids=["password", "token"])
@pytest.mark.parametrize("password", PASSWORDS)
def test_an_address_that_can_not_be_read_is_refused_without_a_word_of_it(password: str, user: str) -> None:
    with pytest.raises(ConfigError) as said:
        Settings.from_args({}, {"TABRELAY_BUS": f"nats://{user}{password}@bus.example:4222"})
    text = str(said.value)
    assert "nats://HOST" in text and "--bus-credentials" in text
    assert not re.search(r"hun|ter2|77|ada|bus\.example", text)
    assert said.value.__context__ is None  # which a traceback would show


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("redis://a.example", "address 2 of 2 does not begin with nats:// or tls://"),
        ("nats://:4222", "address 2 of 2 has no host"),
        ("nats://a.example:0", "address 2 of 2 has an invalid port"),
        ("nats://a.example:65536", "address 2 of 2 has an invalid port"),
        ("nats://a.example/more", "address 2 of 2 has more after its host"),
    ],
)
def test_a_wrong_address_is_reported_with_the_reason(url: str, what: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        Settings.from_args({}, {"TABRELAY_BUS": f"nats://ada:secret@b.example:4222, {url}"})


def test_the_command_does_not_repeat_an_address_from_the_environment(tmp_path: Path) -> None:
    said = refused(tmp_path, TABRELAY_BUS="nats://ada:hunter2/x@bus.example")
    assert "bus: address 1 of 1" in said and "hunter2" not in said and "Traceback" not in said


class Workers:
    """A relay of several processes, with a new connection for each request."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.base = f"http://127.0.0.1:{demo.port}"

    async def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.demo.token}"}
        async with httpx2.AsyncClient(base_url=self.base, headers=headers, trust_env=False, timeout=30) as http:
            return (await http.get(path)).json()

    async def nodes(self) -> set[str]:
        return {node["id"] for node in (await self.get("/-/status"))["nodes"]}

    async def call(self, arguments: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.demo.token}", "Accept": ACCEPT}
        async with httpx2.AsyncClient(base_url=self.base, headers=headers, trust_env=False, timeout=30) as http:
            params = {"name": "echo", "arguments": arguments}
            return (await http.post("/notes", **modern("tools/call", params))).json()


async def test_every_process_of_one_port_answers_for_every_browser(tmp_path: Path, bus: NatsServer) -> None:
    flags = ("notes", "--bus", bus.url, "--workers", "2")
    async with Demo(tmp_path, *flags, verb="serve", bus_beat_s=2, drain_spread_s=0.1) as demo:
        workers = Workers(demo)

        async def are_there() -> bool:
            return len(await workers.nodes()) == 2

        await until(are_there)
        async with SyntheticWorker(workers.base, demo.token, "notes") as worker:
            for number in range(30):
                answer = await workers.call({"x": number})
                assert answer["result"]["content"][0]["text"] == f'{{"x": {number}}}'
            assert len(worker.calls) == 30
        # One process knows the printed code; the page's request may reach any process.
        code = httpx2.URL(demo.url).fragment.removeprefix("pair=")
        async with httpx2.AsyncClient(base_url=workers.base, trust_env=False, timeout=30) as http:
            answer = await http.post("/-/pair", json={"code": code}, headers={"Origin": workers.base})
            assert answer.status_code == 200, answer.text

        before = await workers.nodes()
        [victim, *_] = children(demo.pid)
        os.kill(victim, signal.SIGKILL)

        async def is_replaced() -> bool:
            try:
                now = await workers.nodes()
            except httpx2.HTTPError:  # it was the one that answered
                return False
            return len(now) == 2 and now != before

        await until(is_replaced, 60)
        family = children(demo.pid)
        assert await demo.stop() == 0
        assert [pid for pid in family if is_alive(pid)] == []


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_bus_with_a_password_is_configured_by_the_environment_and_the_password_is_not_shown(
    tmp_path: Path,
) -> None:
    config = 'authorization { user: ada, password: "correct-horse-battery" }\n'
    async with NatsServer(tmp_path / "nats", config=config) as bus:
        url = f"nats://ada:correct-horse-battery@127.0.0.1:{bus.port}"
        async with Demo(tmp_path / "home", "notes", verb="serve", bus=url) as demo:
            await demo.until(lambda: any("Connected to the bus" in line for line in demo.log))
        assert "correct-horse" not in "".join(demo.log)
        async with Demo(tmp_path / "home", "notes", "--bus", bus.url, verb="serve") as demo:
            await demo.until(lambda: any("Can't reach the bus" in line for line in demo.log))
