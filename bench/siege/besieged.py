"""The relay under attack, in a process that reports its memory in use.

For each line of input it prints one of JSON: its resident bytes after all free memory was returned, and the bytes that
it has written to files and sockets so far. Nothing is added to the product for this: a thread asks the garbage
collector, the C library and the system.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
from pathlib import Path

from tabrelay.cli.main import main


def answer() -> None:
    libc = ctypes.CDLL(None)
    page = os.sysconf("SC_PAGE_SIZE")
    for _ in sys.stdin:
        gc.collect()
        libc.malloc_trim(0)
        held = int(Path("/proc/self/statm").read_text().split()[1]) * page
        written = int(Path("/proc/self/io").read_text().split("wchar:")[1].split()[0])
        print(json.dumps({"held": held, "written": written}), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
