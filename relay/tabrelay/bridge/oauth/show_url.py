"""Shows a URL to the user: on stderr always, and in the browser if there is a display.

The browser is started by a separate process without stdout: stdout belongs to the client, and output of a browser there
would break the protocol. No shell is involved, whatever the URL contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Final

from tabrelay.system.open_browser import has_display

START_S: Final = 15.0


async def show(url: str, *, opens: bool = True) -> None:
    print(f"To connect, agree in the browser: {url}", file=sys.stderr, flush=True)
    if not opens or not (os.environ.get("BROWSER") or has_display()):
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webbrowser", url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            await process.wait()
