"""Commands in the relay's messages: with the full path where the reader can use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabrelay.config.settings import Settings
from tabrelay.server import app
from tests.support.running_relay import RunningRelay

PROGRAM = "/opt/bin/tabrelay"


@pytest.fixture(autouse=True)
def installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tabrelay` is not on the PATH."""
    monkeypatch.setattr(app, "command", lambda: PROGRAM)


@pytest.mark.parametrize(
    "remote", [{"host": "0.0.0.0"}, {"public_url": "https://relay.example"}, {"trusted_proxies": ("10.0.0.1",)}]
)
def test_readers_on_other_computers_get_the_name_of_the_program(remote: dict[str, Any]) -> None:
    assert app.shown_command(Settings()) == PROGRAM
    assert app.shown_command(Settings(**remote)) == "tabrelay"


async def test_commands_in_answers_can_be_pasted(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        status = (await relay.http.get("/-/status")).json()
        assert status["token_command"] == f"{PROGRAM} token"
        unknown = await relay.http.post("/nothing", **relay.modern("tools/list"))
        assert f"{PROGRAM} serve nothing" in unknown.json()["error"]["message"]
        for change in ({"revoke": "nothing"}, {"refuse": "AAAA-AAAA"}):
            answer = await relay.http.post("/-/pairs", json=change)
            assert f"{PROGRAM} pairs" in answer.json()["message"]
        own = {"Origin": relay.url}
        code = await relay.http.post("/-/pair", json={"code": "invented"}, headers=own)
        assert f"{PROGRAM} pair" in code.json()["message"]
        async with httpx2.AsyncClient(base_url=relay.url, trust_env=False) as without_token:
            answer = await without_token.get("/-/status")
            assert answer.status_code == 401 and f"`{PROGRAM} token`" in answer.json()["message"]
