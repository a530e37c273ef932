"""Large files on disk are read in pieces, in any order and by several threads."""

from __future__ import annotations

import gc
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tabrelay.assets.stored_file import CHUNK, StoredFile

BODY = os.urandom(3 * CHUNK + 17)


@pytest.fixture
def stored(tmp_path: Path) -> StoredFile:
    (tmp_path / "large.bin").write_bytes(BODY)
    return StoredFile(tmp_path / "large.bin")


def test_pieces_have_at_most_the_given_size_and_make_up_the_file(stored: StoredFile) -> None:
    chunks = list(stored.chunks())
    assert max(map(len, chunks)) == CHUNK and b"".join(chunks) == BODY
    assert len(stored) == len(BODY)
    assert stored.sha256 == hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("has_pread", [True, False])
def test_threads_read_at_once(stored: StoredFile, monkeypatch: pytest.MonkeyPatch, has_pread: bool) -> None:
    if not has_pread:
        monkeypatch.delattr(os, "pread", raising=False)
    offsets = [number * 1009 for number in range(300)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda offset: stored.read(offset, 4096), offsets))
    assert found == [BODY[offset : offset + 4096] for offset in offsets]


def test_the_file_is_closed_with_its_object(tmp_path: Path) -> None:
    (tmp_path / "large.bin").write_bytes(BODY)
    stored = StoredFile(tmp_path / "large.bin")
    descriptor = stored._descriptor
    os.fstat(descriptor)
    del stored
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
