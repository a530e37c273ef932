"""axe-core over every page and state of `tests.screenshots.states`: no serious or critical fault, light and dark.

Playwright injects axe-core; the pages' content security policy does not apply to that. The dark pass looks only at
contrast: the rest is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from tests.screenshots.stage import Stage
from tests.screenshots.states import STATES, PageState
from tests.support.paths import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
GRAVE = ("serious", "critical")
RUN = """async (rules) => {
    const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
    const { violations } = await axe.run(document, options);
    return violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.map(({ target }) => `${target}`) }));
}"""


@pytest.fixture(scope="module")
async def stage(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    async with Stage(Path(tmp_path_factory.mktemp("stage")) / "files", browser, settings) as stage:
        yield stage


async def faults(page: Page) -> list[tuple[str, Any]]:
    """What axe-core calls serious or critical, and where."""
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = [("light", fault) for fault in await page.evaluate(RUN, None)]
    await page.emulate_media(color_scheme="dark")
    found += [("dark", fault) for fault in await page.evaluate(RUN, ["color-contrast"])]
    return [entry for entry in found if entry[1]["impact"] in GRAVE]


@pytest.mark.parametrize("state", [state for state in STATES if state.is_checked], ids=lambda state: state.name)
async def test_no_page_has_a_serious_fault(stage: Stage, state: PageState) -> None:
    async with stage.state():
        page = await state.show(stage)
        await page.emulate_media(color_scheme="light", reduced_motion="reduce")
        assert await faults(page) == []


async def test_axe_reports_a_text_without_contrast(stage: Stage) -> None:
    async with stage.state():
        page = await stage.components()
        await page.add_style_tag(content=":root { --color-muted: var(--color-line); }")
        assert {(scheme, fault["id"]) for scheme, fault in await faults(page)} == {
            ("light", "color-contrast"),
            ("dark", "color-contrast"),
        }
