"""The fuzz targets by name. Each takes bytes, and raises when two implementations disagree."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

NAMES: Final = ("http_connection", "websocket_frames", "link_frames", "json_skeletons")
CORPUS: Final = Path(__file__).parent / "corpus"


def target(name: str) -> Callable[[bytes], None]:
    check: Callable[[bytes], None] = import_module(f"tests.fuzz.{name}").check
    return check


def seeds(name: str) -> list[Path]:
    """The committed inputs: initial ones, and those that once found a fault."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
