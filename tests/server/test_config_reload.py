"""Reload of the configuration while the relay runs, as a real process with real children."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.child_specs import CHILD, is_alive, until
from tests.support.recorder import Wiretap
from tests.support.running_relay import ACCEPT, modern
from tests.support.waiting import BOUND_S, pause


def table(name: str, *more: str) -> str:
    args = json.dumps(["-I", "-S", str(CHILD), "legacy", *more])
    return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"


@asynccontextmanager
async def serving(
    home: Path, file: Path, *flags: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx2.AsyncClient]]:
    """`tabrelay serve -c file`, and a client with its token."""
    command = (sys.executable, "-m", "tabrelay", "serve", "-c", str(file), "--port", "0", "--json", "--home", str(home))
    pipe, tap = asyncio.subprocess.PIPE, Wiretap()
    environment = {**os.environ, **tap.env}
    process = await asyncio.create_subprocess_exec(*command, *flags, stdout=pipe, stderr=pipe, env=environment)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            said = json.loads(await process.stdout.readline())
        headers = {"Authorization": f"Bearer {said['token']}", "Accept": ACCEPT}
        base = said["base_url"]
        async with httpx2.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=30) as http:
            yield process, http
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(BOUND_S):
            await process.wait()
    tap.read()
    assert tap.checked["client"] > 0
    tap.finish()


async def pid(http: httpx2.AsyncClient, server: str) -> int:
    answer: Any = (await http.post(f"/{server}", **modern("tools/call", {"name": "pid", "arguments": {}}))).json()
    return int(answer["result"]["content"][0]["text"])


async def names(http: httpx2.AsyncClient) -> set[str]:
    return {row["name"] for row in (await http.get("/-/status")).json()["servers"]}


async def until_named(http: httpx2.AsyncClient, wanted: set[str]) -> None:
    async with asyncio.timeout(BOUND_S):
        while await names(http) != wanted:
            await pause()


async def test_a_change_touches_only_what_changed(tmp_path: Path) -> None:
    file = tmp_path / "tabrelay.toml"
    file.write_text(table("same") + table("other") + table("gone"))
    async with serving(tmp_path / "home", file) as (process, http):
        same, other, gone = [await pid(http, name) for name in ("same", "other", "gone")]
        slow = asyncio.create_task(http.post("/same", **modern("tools/call", {"name": "slow", "arguments": {}})))
        file.write_text(table("same") + table("other", "changed") + table("new") + "[servers.page]\n")
        process.send_signal(signal.SIGHUP)
        await until_named(http, {"same", "other", "new", "page"})
        assert await pid(http, "same") == same and not slow.done()
        assert await pid(http, "other") != other
        assert await pid(http, "new") not in (same, other, gone)
        assert not is_alive(gone) and not is_alive(other)
        # A file with mistakes changes nothing.
        file.write_text('[servers.same]\ntype = "x"\n')
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            while b"unknown type" not in await process.stderr.readline():
                pass
        assert await pid(http, "same") == same
        await http.post("/same", **modern("tools/call", {"name": "release", "arguments": {}}))
        assert (await slow).json()["result"]["content"][0]["text"] == "released"
    assert not is_alive(same)


async def test_a_watched_file_is_taken_over_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "tabrelay.toml"
    file.write_text(table("first"))
    async with serving(tmp_path / "home", file, "--watch") as (_process, http):
        first = await pid(http, "first")
        file.write_text(table("first") + table("second"))
        await until_named(http, {"first", "second"})
        assert await pid(http, "first") == first


async def test_two_stop_signals_leave_no_process_behind(tmp_path: Path) -> None:
    file = tmp_path / "tabrelay.toml"
    file.write_text(table("first"))
    async with serving(tmp_path / "home", file) as (process, http):
        first = await pid(http, "first")
        slow = asyncio.create_task(http.post("/first", **modern("tools/call", {"name": "slow", "arguments": {}})))
        async with asyncio.timeout(BOUND_S):
            while (await http.get("/-/status")).json()["servers"][0]["in_flight"] == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        # Received, and the relay waits for the call: two signals at once are delivered as one.
        async with asyncio.timeout(BOUND_S):
            while (await http.get("/-/healthz")).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
        slow.cancel()
        await until(lambda: not is_alive(first))
