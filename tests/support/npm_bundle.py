"""Bundles a script and the npm packages that it imports into one browser module. Bundles are made at test time and not
kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "plain"


def esbuild() -> Path:
    """The program itself: npm installs the one for this platform beside the package, and it needs no Node."""
    found = sorted((ROOT / "node_modules" / "@esbuild").glob("*/bin/esbuild*"))
    if not found:
        raise FileNotFoundError("esbuild is not in node_modules; `make test` installs it")
    return found[0]


async def bundle(script: str, folder: Path) -> Path:
    """`plain/{script}` and all that it imports as one file in `folder`."""
    made = folder / script
    process = await asyncio.create_subprocess_exec(
        esbuild(),
        str(SCRIPTS / script),
        "--bundle",
        "--format=esm",
        "--target=es2022",
        "--log-level=warning",
        f"--outfile={made}",
        stderr=asyncio.subprocess.PIPE,
    )
    _, problems = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"esbuild failed:\n{problems.decode()}")
    return made
