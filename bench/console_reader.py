"""An open console as a process: reads the relay's live stream of calls, and counts rows and left-out calls.

Prints a JSON line when the stream is open, and another one for each line of its input. It shows nothing.
"""

from __future__ import annotations

import os
import sys
from threading import Thread

import httpx2
import orjson

from bench.stage import TOKEN, announce


def main() -> None:
    seen = {"rows": 0, "left_out": 0}

    def count() -> None:
        for _ in sys.stdin:
            announce(**seen)

    headers = {"Authorization": f"Bearer {os.environ[TOKEN]}"}
    with httpx2.stream(
        "GET", f"{sys.argv[1]}/-/console/events", headers=headers, timeout=None, trust_env=False
    ) as response:
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            event = orjson.loads(line[6:])
            if event["type"] == "hello":
                announce()
                Thread(target=count, daemon=True).start()
            elif event["type"] == "calls":
                seen["rows"] += len(event["rows"])
            elif event["type"] == "sampled":
                seen["left_out"] += event["dropped"]


if __name__ == "__main__":
    main()
