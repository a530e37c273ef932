"""The relay in a process that can be asked how many tasks and objects it has: one JSON line for each line of input.

Nothing is added to the product for this: a thread counts, through the garbage collector, what belongs to asyncio.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading

from tabrelay.cli import main


def count() -> dict[str, int]:
    objects = gc.get_objects()
    tasks = sum(isinstance(item, asyncio.Task) and not item.done() for item in objects)
    return {"tasks": tasks, "objects": len(objects)}


def answer() -> None:
    for _ in sys.stdin:
        gc.collect()
        print(json.dumps(count()), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
