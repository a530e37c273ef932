"""pytest plugin: relays in this process use the classes of uvicorn and websockets, as if their private API had changed.

Use: ``pytest -p tests.support.plain_classes``.
"""

from __future__ import annotations

from typing import Final

import pytest

from tabrelay.server.uvicorn_adapter import private_api

REASON: Final = "the test wants it"


@pytest.fixture(autouse=True, scope="session")
def plain_classes() -> None:
    private_api.http_misfit = private_api.websocket_misfit = lambda: REASON
