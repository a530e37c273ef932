"""Stamps: whether the result of a step is up to date. Each holds a hash of the files that the step depends on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from steps.tree import ROOT


def digest(*inputs: Path | str) -> str:
    """One hash for texts, files, and folders of files."""
    total = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            total.update(item.encode() + b"\0")
            continue
        for path in sorted(item.rglob("*")) if item.is_dir() else [item]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def is_stamped(stamp: Path, value: str) -> bool:
    return stamp.is_file() and stamp.read_text() == value
