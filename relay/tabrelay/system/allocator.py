"""glibc malloc settings: memory of large messages and files is returned to the system after use.

By default glibc raises its thresholds when a program frees a large block: after one file of 15 MB, blocks of up to
15 MB come from the heap, and 30 MB of free memory stay at the heap's end. So the relay would keep its peak memory.
Smaller blocks are reused for the next results; the relay returns them every few seconds (`HeapTrimmer`).

Does nothing with other C libraries, which have no such settings.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import Final

MIB: Final = 1024 * 1024
# Parameters of mallopt(3) in <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
# With 32 MiB, half of it free in many blocks, the first trim took 2 to 36 ms on a busy machine, and the next 1 to 9 ms.
MOST_TRIMMED: Final = 32 * MIB  # bytes of heap growth since the start; a larger heap is not trimmed
SETTINGS: Final = {
    M_MMAP_THRESHOLD: MIB,  # a larger block is mapped separately, and unmapped when it is freed
    # More free memory at the heap's end is returned. With less, results of 2 MiB would need new pages each time.
    M_TRIM_THRESHOLD: 8 * MIB,
    M_ARENA_MAX: 2,  # the main thread's heap, and one for all other threads, which allocate little
}


def limit_free_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Apply the settings, unless glibc's environment variables contain others. Returns whether it did."""
    # defence: memory: the user's settings of the allocator are kept
    if not sys.platform.startswith("linux") or _is_chosen(environ):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - only glibc has it
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    done = [mallopt(parameter, value) for parameter, value in SETTINGS.items()]
    return all(done)


class HeapTrimmer:
    """Returns the free memory that glibc keeps for the next results to the system. Create it at the relay's start."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.sbrk.restype, self._libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
        self._start = self._end()

    def _end(self) -> int:
        """Address of the heap's end."""
        return int(self._libc.sbrk(0))

    def trim(self) -> bool:
        """Returns whether it did. A heap that is so large that trimming takes long is left alone."""
        # defence: memory: a large heap is not trimmed on the event loop
        if self._end() - self._start > MOST_TRIMMED:
            return False
        self._libc.malloc_trim(0)
        return True


def _is_chosen(environ: Mapping[str, str]) -> bool:
    return "glibc.malloc." in environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in environ
    )
