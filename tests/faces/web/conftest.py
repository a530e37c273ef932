"""The web routes that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.web_routes import WebRoutes


@pytest.fixture
def web(tmp_path: Path) -> WebRoutes:
    return WebRoutes(tmp_path)
