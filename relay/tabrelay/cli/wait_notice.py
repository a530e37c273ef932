"""A line on stderr when a call waits for a page: the relay holds a call for a browser that is away.

The status of the relay says whether the server is offline, and how long calls wait. No error is reported here: the
call itself fails if there is a reason.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any, Final

from tabrelay.cli import flags, relay_choice, running_relay
from tabrelay.cli.output import ExitWith

AFTER_S: Final = 1.0


async def show(args: argparse.Namespace, where: str) -> None:
    """Started with the call and cancelled when it ends. `where`: the URL that the call is sent to."""
    from tabrelay.bridge.target import is_url

    began_s = time.time()
    await asyncio.sleep(AFTER_S)
    home = flags.settings(args).home
    if is_url(args.target) and not relay_choice.is_local(home, args.target):
        return
    base, _, name = where.rpartition("/")
    try:
        status = await asyncio.to_thread(running_relay.request_at, base, home, "/-/status")
    except ExitWith:
        return
    if (until_s := waits_until(status, name, began_s)) is not None:
        clock = time.strftime("%H:%M:%S", time.localtime(until_s))
        print(f'Waiting until {clock} for a page that offers "{name}". Open it.', file=sys.stderr, flush=True)


def waits_until(status: dict[str, Any], name: str, began_s: float) -> float | None:
    """When a call that began then fails, if no page connects before; None if a page is connected."""
    rows = [row for row in status["servers"] if row["name"] == relay_choice.name_of(name)]
    wait_s = status.get("away_wait_s")  # a relay of another version may not have it
    is_away = any(row["state"] == "offline" and row.get("kind") == "browser" for row in rows)
    return began_s + wait_s if is_away and wait_s is not None else None
