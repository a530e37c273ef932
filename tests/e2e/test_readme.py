"""The README's examples, in a page on another origin, and its commands in order."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from playwright.async_api import BrowserContext

from tabrelay.cli.main import main
from tabrelay.system import relay_records
from tests import canary
from tests.support.demo import Demo
from tests.support.documented_pages import fetch_files
from tests.support.other_origin import Site
from tests.support.recorder import Wiretap
from tests.support.waiting import BOUND_S, until

ROOT = Path(__file__).parents[2]

# Resolves when the hub lists all of these tools, of any tab.
OFFERED = """async ([client, ...names]) => {
    const { connect } = await import(client);
    const connection = connect({ server: "notes" });
    const next = (kind) => new Promise((resolve) => connection.addEventListener(kind, resolve, { once: true }));
    const offered = (name) => connection.catalogue?.tools.some((tool) => tool.name === name);
    while (!names.every(offered)) await next("catalogue");
    while (connection.state.state !== "connected") await next("state");
}"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


async def test_a_page_on_another_origin_offers_tools_in_javascript_and_python(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    [html] = blocks("html")
    [python] = blocks("python")
    site = Site(tmp_path / "app")
    site.folder.mkdir()
    async with Demo(tmp_path / "home", "notes", verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        filled = html.replace('server: "notes"', 'server: "notes", modules: ["/tools.py"]')
        (site.folder / "index.html").write_text(f"<!doctype html><p id=note>Buy milk.</p>{filled}")
        await fetch_files(site.folder, relay)
        (site.folder / "tools.py").write_text(python)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            code = await page.locator("tabrelay-panel .pairing-code").inner_text()
            assert await asyncio.to_thread(main, ["pairs", "approve", code, "--home", str(tmp_path / "home")]) == 0
            await page.evaluate(OFFERED, [f"{here}/-/client.js", "current_note", "word_count"])
            async with relay.client() as client:
                note = await client.call_tool("current_note", {})
                assert note.content[0].text == "Buy milk."  # type: ignore[union-attr]
                words = await client.call_tool("word_count", {"text": "To be or not to be", "unique": True})
                assert words.structured_content == {"result": 4}


# -- the lines of the README, in order ---------------------------------------------------------------------------------

STARTS_RELAY = ("make demo", "tabrelay serve", "tabrelay demo")
# `make demo` is the set-up of this test, and the relay; the others have tests that take longer.
LEFT_OUT = ("make test", "pip install", "tabrelay demo ", "tabrelay dev ")


def lines() -> list[str]:
    """The commands of the README's shell blocks, without comments. A line that ends in a backslash continues."""
    text = "\n".join(blocks("sh")).replace("\\\n", " ")
    found = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in found if line]


class Reader:
    """A user with an empty home directory who types the README's lines, in a folder like a checkout."""

    def __init__(self, folder: Path) -> None:
        self.home, self.folder = folder / "home", folder / "checkout"
        self.home.mkdir()
        (self.folder / ".venv").mkdir(parents=True)
        (self.folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = str(probe.getsockname()[1])
        programs = folder / "programs"
        programs.mkdir()
        self.given = folder / "claude.txt"
        self._program(programs / "claude", f'printf "%s\\n" "$@" > {self.given}')
        self._program(programs / "make", f"exec {self.folder}/.venv/bin/tabrelay demo --no-open")
        self.tap = Wiretap()
        kept = {name: os.environ[name] for name in ("LANG", "TZ", "TMPDIR") if name in os.environ}
        path = os.pathsep.join([str(programs), "/usr/local/bin", "/usr/bin", "/bin"])
        self._env = {**kept, **self.tap.env, "HOME": str(self.home), "PATH": path, "TABRELAY_PORT": self.port}
        self._exports: list[str] = []
        self._relays: list[asyncio.subprocess.Process] = []

    @staticmethod
    def _program(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    @property
    def state(self) -> Path:
        return self.home / ".config" / "tabrelay"

    async def type(self, line: str) -> str:
        """The output of the line. A line that starts a relay returns when the relay is ready."""
        line = line.replace("4747", self.port)
        if line.startswith("export "):
            self._exports.append(line)
            return ""
        script = "\n".join(["set -e", *self._exports, line])
        if line.startswith(STARTS_RELAY):
            return await self._start(script)
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script, cwd=self.folder, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        async with asyncio.timeout(BOUND_S):
            out, err = await process.communicate()
        assert process.returncode == 0, f"{line}\n{out.decode()}\n{err.decode()}"
        return out.decode()

    async def _start(self, script: str) -> str:
        log = self.folder / f"relay-{len(self._relays)}.txt"
        with log.open("w") as file:
            relay = await asyncio.create_subprocess_exec(
                "bash", "-c", script, cwd=self.folder, env=self._env, stdout=file, stderr=file
            )
        self._relays.append(relay)
        await until(lambda: "Ctrl+C stops" in log.read_text())
        canary.register((self.state / "token").read_text().strip())
        return log.read_text()

    async def stop(self) -> None:
        for record in relay_records.read(self.state):
            await self.type(f"tabrelay stop --port {record.port}")
        for relay in self._relays:
            async with asyncio.timeout(BOUND_S):
                await relay.wait()


async def test_the_lines_of_the_readme_work_in_order_in_an_empty_home(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    reader = Reader(tmp_path)
    typed: list[str] = []
    site = Site(reader.folder)
    try:
        for line in lines():
            if line.startswith(LEFT_OUT) or line == "tabrelay demo":
                continue
            said = await reader.type(line)
            typed.append(line)
            if line == "make demo":
                [url] = re.findall(r"Page +(\S+)", said)
                page = await context.new_page()
                await page.goto(url)
                await offered(reader, "demo", "add")
            elif line == "tabrelay call demo add a=2 b=3":
                assert said == "5\n"
            elif line.startswith("tabrelay install claude-code"):
                servers = json.loads((reader.home / ".claude.json").read_text())["mcpServers"]
                entry = servers["demo"]
                shown = await reader.type(" ".join([entry["command"], *entry["args"], "--check"]))
                assert "It works." in shown
            elif line.startswith("claude mcp add"):
                given = reader.given.read_text().splitlines()
                token = (reader.state / "token").read_text().strip()
                assert given[-2:] == ["--header", f"Authorization: Bearer {token}"]
                assert given[-3] == f"http://127.0.0.1:{reader.port}/demo"
                assert "add\n" in await reader.type(f"tabrelay tools {given[-3]}")
            elif line.startswith("curl"):
                await offer_from_own_page(context, reader, site)
        assert [line.split()[0] for line in typed] == [
            "make",
            "export",
            *["tabrelay"] * 2,
            "claude",
            *["tabrelay"] * 3,  # init, stop, serve
            "curl",
        ]
    finally:
        await context.close()
        await reader.stop()
    reader.tap.finish()


async def offered(reader: Reader, server: str, tool: str) -> None:
    """Wait until the relay lists the page's tool."""

    async def is_there() -> bool:
        rows = json.loads(await reader.type(".venv/bin/tabrelay status --json"))["servers"]
        return any(row["name"] == server and tool in [one["name"] for one in row["tools"]] for row in rows)

    await until(is_there)


async def offer_from_own_page(context: BrowserContext, reader: Reader, site: Site) -> None:
    [html] = blocks("html")
    (site.folder / "index.html").write_text(f"<!doctype html><p id=note>Buy milk.</p>{html}")
    with site:
        page = await context.new_page()
        await page.goto(site.origin)
        code = await page.locator("tabrelay-panel .pairing-code").inner_text()
        await reader.type(f"tabrelay pairs approve {code}")
        await offered(reader, "notes", "current_note")
        assert await reader.type("tabrelay call notes current_note") == "Buy milk.\n"
        assert "All is well." in await reader.type("tabrelay doctor")
