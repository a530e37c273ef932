"""Starts an installed `tabrelay demo` without a network, and checks it through its page as a user would.

A script, not a test: test_wheel.py runs it inside an empty network namespace, where the relay, the browser and this
process have only the loopback device. It prints one JSON line with its findings.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import socket
import struct
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 60

# Runs in the page: asks the relay until it lists every tool that the page should offer.
ALL_OFFERED = """async ({ token, expected }) => {
  for (;;) {
    const response = await fetch("/-/status", { headers: { Authorization: `Bearer ${token}` } });
    const names = (await response.json()).servers.flatMap((server) => server.tools.map((tool) => tool.name));
    if (expected.every((name) => names.includes(name))) return names;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}"""

BOOTED_FROM = """async () => (await import("/-/client.js")).connect({ server: "demo" }).boot?.from"""


def raise_loopback() -> None:
    """The loopback device of a new namespace is down. Same as `ip link set lo up`, without needing `ip`."""
    import fcntl

    get_flags, set_flags, is_up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = struct.unpack("16sH", fcntl.ioctl(any_socket, get_flags, struct.pack("16sH", b"lo", 0))[:18])
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH", name, flags | is_up))


def load_settings() -> Any:
    spec = importlib.util.spec_from_file_location("playwright_settings", ROOT / "playwright.config.py")
    assert spec and spec.loader
    settings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(settings)
    return settings


def get(url: str, token: str | None = None) -> tuple[bytes, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
        return response.read(), response.headers["Content-Type"]


@contextlib.asynccontextmanager
async def demo(command: str, home: str, tap: dict[str, str]) -> AsyncIterator[dict[str, Any]]:
    """The relay as a process whose PATH contains only its own scripts: no Node, no npm."""
    process = await asyncio.create_subprocess_exec(
        command,
        *("demo", "--json", "--no-open", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": str(Path(command).parent), "HOME": home, "LANG": "C.UTF-8", **tap},
    )
    try:
        assert process.stdout
        line = await asyncio.wait_for(process.stdout.readline(), READY_TIMEOUT_S)
        yield json.loads(line)
    finally:
        process.terminate()
        await process.wait()


async def see_tools(ready: dict[str, Any], expected: set[str]) -> tuple[list[str], str]:
    """Open the page and wait until the relay lists its tools; also returns the source of the page's Python."""
    settings = load_settings()
    base = ready["base_url"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**settings.launch_options())
        page = await browser.new_page()
        wrong: list[str] = []
        page.on("request", lambda request: None if request.url.startswith(base) else wrong.append(request.url))
        page.on("response", lambda response: None if response.ok else wrong.append(f"{response.status} {response.url}"))
        await page.goto(ready["url"])
        asked = {"token": ready["token"], "expected": sorted(expected)}
        try:
            async with asyncio.timeout(settings.BOOT_TIMEOUT_MS / 1000):
                seen = await page.evaluate(ALL_OFFERED, asked)
        except TimeoutError:
            text = await page.inner_text("body")
            raise AssertionError(f"the page does not offer {sorted(expected)}; it says:\n{text}") from None
        booted_from = await page.evaluate(BOOTED_FROM)
        await browser.close()
    assert not wrong, wrong
    return sorted(seen), booted_from


async def look(command: str, home: str, expected: set[str], tap: dict[str, str]) -> dict[str, Any]:
    async with demo(command, home, tap) as ready:
        base = ready["base_url"]
        manifest = json.loads(get(f"{base}/-/manifest.json")[0])
        wasm, wasm_type = get(f"{base}{manifest['pyodide']}pyodide.asm.wasm")
        tools, booted_from = await see_tools(ready, expected)
        library, _ = get(f"{base}{manifest['pyodide']}python_stdlib.zip")
        return {
            "interfaces": [name for _, name in socket.if_nameindex()],
            "health": json.loads(get(f"{base}/-/healthz")[0]),
            "wasm": [wasm[:4].hex(), wasm_type],
            "library": library[:2].decode(),
            "tools": tools,
            "booted_from": booted_from,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", help="the installed tabrelay")
    parser.add_argument("--home", required=True, help="a folder for the relay's state")
    parser.add_argument("--namespace", action="store_true", help="this is a new network namespace: raise its loopback")
    parser.add_argument("--expect", nargs="*", default=[], metavar="TOOL")
    parser.add_argument(
        "--tap", type=json.loads, default={}, help="environment that makes the relay record what it receives"
    )
    args = parser.parse_args()
    if args.namespace:
        raise_loopback()
    json.dump(asyncio.run(look(args.command, args.home, set(args.expect), args.tap)), sys.stdout)


if __name__ == "__main__":
    main()
