"""Folders of the source tree that tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SUPPORT: Final = ROOT / "tests" / "support"
JS: Final = ROOT / "browser_pkg" / "tabserver" / "js"
