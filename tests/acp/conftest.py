"""The conductor waits for its relay as long as a busy machine takes; a test of that deadline sets it itself."""

from __future__ import annotations

import pytest

from tabrelay.acp import relay_client
from tests.support.waiting import BOUND_S


@pytest.fixture(autouse=True)
def patient_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_client, "REQUEST_S", BOUND_S)
