"""Fixtures for every selected browser: `TABRELAY_BROWSERS=chromium,firefox,webkit`; Chromium by default.

`make test-browsers` selects all of them, and the table in docs/reference/browsers.md (`TABRELAY_BROWSERS_TABLE`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.browser_engines import Engine, Tab, engine
from tests.support.browser_table import Verdicts
from tests.support.playwright_settings import ROOT, load_settings
from tests.support.web_app import App
from tests.support.worker_modes import MODES

NAMES = os.environ.get("TABRELAY_BROWSERS", "chromium").split(",")
TABLE = os.environ.get("TABRELAY_BROWSERS_TABLE")

verdicts = Verdicts()


@pytest.fixture(scope="session")
def settings() -> ModuleType:
    return load_settings()


@pytest.fixture(scope="session")
def snapshot() -> None:
    """The memory image that workers start from, made of the present files."""
    subprocess.run([sys.executable, ROOT / ".ci" / "setup.py", "snapshot"], check=True)


@pytest.fixture(scope="session", params=NAMES)
async def started(request: pytest.FixtureRequest, settings: ModuleType, snapshot: None) -> AsyncIterator[Engine]:
    async with engine(request.param, settings) as opened:
        verdicts.versions[request.param] = opened.version
        yield opened


@pytest.fixture
async def browser(started: Engine) -> Engine:
    await started.renew()
    return started


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
async def app(settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    async with App(tmp_path_factory.mktemp("browsers"), settings.BOOT_TIMEOUT_MS / 1000) as app:
        yield app


@pytest.fixture
async def tabs() -> AsyncIterator[list[Tab]]:
    """Tabs that a test has opened; they are closed after it."""
    opened: list[Tab] = []
    yield opened
    for tab in opened:
        await tab.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    call = getattr(item, "callspec", None)
    if call is not None and "started" in call.params and (report.when == "call" or report.failed):
        verdicts.add(call.params["started"], call.params.get("mode", "shared"), item, report.passed)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if TABLE and verdicts.versions:
        verdicts.write(Path(TABLE))
