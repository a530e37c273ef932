"""`playwright.config.py`, loaded by path: its name would be looked up inside the installed Playwright."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_settings", ROOT / "playwright.config.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
