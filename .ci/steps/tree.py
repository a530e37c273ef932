"""Paths in this tree."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
MODULES = ROOT / "node_modules"
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
