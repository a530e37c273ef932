"""Fixture of the tests of tabs: a hub with a fake clock."""

from __future__ import annotations

import pytest

from tests.support.hub_harness import HubRig


@pytest.fixture
def rig() -> HubRig:
    return HubRig()
