"""The browser of the end-to-end tests."""

from __future__ import annotations

from tests.e2e.conftest import browser, context, mode, settings, snapshot

__all__ = ["browser", "context", "mode", "settings", "snapshot"]
