"""`tabrelay doctor` at a relay with upstreams: one that does not connect is reported as a problem."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tabrelay.config.specs import StdioSpec
from tests.support.child_specs import child
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S


async def test_a_server_that_does_not_start_is_bad_and_the_advice_is_how_to_mend_it(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, specs=[child("fine"), StdioSpec("gone", "no-such-program")]) as relay:
        await relay.has_read("fine")
        async with asyncio.timeout(BOUND_S):
            while (await relay.http.get("/-/status")).json()["servers"][1]["connection"] != "failed":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        address = ("--home", str(tmp_path), "--port", str(relay.port))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tabrelay", "doctor", "--json", *address), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    found = {row["text"].partition(":")[0]: row for row in json.loads(out) if row["what"] == "server"}
    assert found["fine"]["state"] == "ok"
    assert found["gone"]["state"] == "bad"
    assert found["gone"]["text"] == 'gone: failed: there is no program "no-such-program"'
    assert "tabrelay reconnect gone" in found["gone"]["advice"]
    assert process.returncode == 1
