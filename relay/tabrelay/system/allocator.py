"""Settings of glibc's memory allocator: memory of large messages and files is given back to the system after use.

By default glibc raises its thresholds when a program frees a large block: after one file of 15 MB, blocks of up to
15 MB come from the heap, and 30 MB of free memory stay at the heap's end. So the relay would keep the most memory that
it ever needed at one moment. Other C libraries have no such settings and are left alone.
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
SETTINGS: Final = {
    M_MMAP_THRESHOLD: MIB,  # a larger block is mapped by itself, and unmapped when it is freed
    # More free memory at the heap's end is given back. With less, results of 2 MiB would take new pages each time.
    M_TRIM_THRESHOLD: 8 * MIB,
    M_ARENA_MAX: 2,  # the main thread's heap, and one for all other threads, which allocate little
}


def limit_free_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Apply the settings, unless the user has chosen others by glibc's environment variables. Says whether it did."""
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


def _is_chosen(environ: Mapping[str, str]) -> bool:
    return "glibc.malloc." in environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") and name.endswith("_") for name in environ
    )
