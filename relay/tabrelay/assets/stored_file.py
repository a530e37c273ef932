"""Content of a large asset, on disk: read in pieces, never kept in memory as a whole.

The file stays open, so its content stays the one that was hashed, even if an upgrade replaces the file meanwhile. Reads
have explicit offsets and may run in several threads at once. It does not notice a file that is rewritten in place.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

CHUNK: Final = 256 * 1024  # bytes
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class StoredFile:
    """An open file. It is closed when the object is collected."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, _FLAGS)
        weakref.finalize(self, os.close, self._descriptor)
        self._lock = threading.Lock()
        self._size = os.fstat(self._descriptor).st_size

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes."""
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, offset)
        with self._lock:  # Windows has one position per open file
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return os.read(self._descriptor, size)

    def chunks(self) -> Iterator[bytes]:
        offset = 0
        while chunk := self.read(offset, CHUNK):
            yield chunk
            offset += len(chunk)

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()
