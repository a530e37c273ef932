"""Settings of the browser tests agree with the Playwright that is installed."""

import re
from pathlib import Path

import playwright

from tests.support.playwright_settings import load_settings


def test_what_playwright_switches_off_stays_off() -> None:
    bundle = Path(playwright.__file__).parent / "driver" / "package" / "lib" / "coreBundle.js"
    [own] = re.findall(r"disabledFeatures = \[(.*?)\];", bundle.read_text(encoding="utf-8"), re.DOTALL)
    assert set(re.findall(r'^\s*"(\w+)"', own, re.MULTILINE)) == set(load_settings().PLAYWRIGHT_DISABLES)
