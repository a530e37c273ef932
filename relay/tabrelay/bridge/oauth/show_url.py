"""Shows an address to the user: on stderr always, in the browser if there is one to look at.

The browser is started by a process of its own whose output is not ours: stdout belongs to the client, and a browser
that prints something there would end the conversation. No shell is involved, whatever the address contains.
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
