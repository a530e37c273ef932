"""The tutorial: its files and commands, step by step, in Chromium.

The tests share the reader's folder, relay and tab, so each of them continues where the one before has ended. What the
pages print as the output of commands is compared.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.support.approval_dialog import Dialog
from tests.support.typed_commands import TypedCommands
from tests.support.waiting import BOUND_S, until

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorial"
IN_APP = ("index.html", "tools.py")
CONNECTED = "document.querySelector('#state')?.textContent === 'connected'"
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page. `title` is the name of its file; `output` is the block of text that follows it."""

    language: str
    title: str | None
    body: str
    output: str | None


def blocks(step: int) -> list[Block]:
    [page] = PAGES.glob(f"{step}-*.md")
    found = [match.groupdict() for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    after = [*found[1:], None]
    return [
        Block(
            one["language"], one["title"], one["body"], next_["body"] if next_ and next_["language"] == "text" else None
        )
        for one, next_ in zip(found, after, strict=True)
    ]


def shell(step: int) -> list[Block]:
    return [block for block in blocks(step) if block.language == "sh"]


class Reader(TypedCommands):
    """The reader's shell, and the tab with the app."""

    def __init__(self, folder: Path, context: BrowserContext, boot_ms: float) -> None:
        super().__init__(folder / "home", folder / "work")
        self.use_environment()
        self.context, self._boot_ms = context, boot_ms
        self.app = self.folder / "groceries"

    def save(self, step: int) -> None:
        """Save the files of a step."""
        for block in blocks(step):
            if block.title is not None and not block.title.startswith("."):
                (self.app if block.title in IN_APP else self.folder).joinpath(block.title).write_text(block.body)

    async def read(self, block: Block) -> None:
        """Type the lines of a block, and compare what they print."""
        said = ""
        for line in block.body.splitlines():
            is_refused = block.output is not None and block.output.startswith("Invalid arguments")
            said += await (self.type_and_fail(line) if is_refused else self.type(line))
        assert block.output is None or said == block.output

    async def open(self, query: str = "") -> Page:
        page = await self.context.new_page()
        await page.goto(f"http://127.0.0.1:{self.port}/{query}")
        await page.wait_for_function(CONNECTED, timeout=self._boot_ms)
        return page

    async def reloaded(self, page: Page) -> None:
        """Save what the step has, and wait until `tabrelay dev` has loaded the page again."""
        await page.wait_for_function(f"!globalThis.isOld && {CONNECTED}", timeout=self._boot_ms)

    async def offers(self, *tools: str) -> None:
        async def are_there() -> bool:
            listed = json.loads(await self.type("tabrelay tools groceries --json"))
            return set(tools) <= {tool["name"] for tool in listed}

        await until(are_there)

    async def save_and_reload(self, step: int, page: Page) -> None:
        await page.evaluate("globalThis.isOld = true")
        self.save(step)
        await self.reloaded(page)


@pytest.fixture(scope="module")
async def reader(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reader]:
    context = await browser.new_context()
    context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
    reader = Reader(tmp_path_factory.mktemp("reader"), context, settings.BOOT_TIMEOUT_MS)
    yield reader
    await context.close()
    await reader.stop()
    reader.tap.finish()


@pytest.fixture(scope="module")
async def tab(reader: Reader) -> Page:
    """The reader's tab, from the first step on."""
    init, dev, *_rest = shell(1)
    await reader.read(init)
    reader.save(1)
    await reader.read(dev)
    return await reader.open()


async def items(page: Page) -> list[str]:
    return await page.locator("li").all_inner_texts()


async def test_step_1_offers_a_tool_in_javascript(reader: Reader, tab: Page) -> None:
    _init, _dev, call, refused, install = shell(1)
    await reader.offers("add_item")
    await reader.read(call)
    assert await items(tab) == ["Milk"]
    await reader.read(refused)
    await reader.read(install)
    assert "groceries" in json.loads((reader.home / ".claude.json").read_text())["mcpServers"]


async def test_step_2_offers_a_tool_in_python_that_can_be_edited(reader: Reader, tab: Page) -> None:
    await reader.save_and_reload(2, tab)
    await reader.offers("add_item", "scale")
    [call] = shell(2)
    await reader.read(call)
    tools = reader.app / "tools.py"
    tools.write_text(tools.read_text().replace(":g}", ":.1f}"))

    async def is_edited() -> bool:
        return "300.0 g flour" in await reader.type(call.body.strip())

    await until(is_edited)
    reader.save(2)


async def test_step_3_offers_the_list_as_a_resource(reader: Reader, tab: Page) -> None:
    await reader.save_and_reload(3, tab)
    for item in ("Bread", "Butter"):
        await tab.get_by_label("Item").fill(item)
        await tab.get_by_role("button", name="Add").click()
    await reader.offers("add_item")
    [read] = shell(3)
    await reader.read(read)


async def test_step_4_asks_the_user_of_the_agent(reader: Reader, tab: Page) -> None:
    await reader.save_and_reload(4, tab)
    await reader.offers("add_item")
    [call] = shell(4)
    await reader.read(call)
    [typed] = [block for block in blocks(4) if block.language == "console"]
    command, *answers = typed.body.splitlines()
    # A terminal, which the reader answers.
    script = f"script -qec {json.dumps(command.removeprefix('$ '))} /dev/null"
    terminal = await asyncio.create_subprocess_exec(
        *("bash", "-c", script),
        cwd=reader.folder,
        env=reader.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        out, _ = await terminal.communicate(b"y\ny\n")
    said = out.decode().replace("\r", "")
    for line in answers:
        assert line.removesuffix(" y") in said
    assert await items(tab) == ["Milk", "Milk"]


async def test_step_5_asks_in_the_tab_before_it_deletes(reader: Reader, tab: Page) -> None:
    await reader.save_and_reload(5, tab)
    await reader.offers("add_item", "clear_list")
    await reader.type("tabrelay call groceries add_item item=Milk")
    [call] = shell(5)
    approved, refused = [block.body for block in blocks(5) if block.language == "text"]
    await tab.bring_to_front()
    dialog = await Dialog.at(tab)
    waiting = asyncio.create_task(reader.type(call.body.strip()))
    await dialog.click("Approve once")
    assert await waiting == approved
    assert await items(tab) == []
    again = asyncio.create_task(reader.type_and_fail(call.body.strip()))
    await dialog.click("Refuse")
    assert await again == refused


async def test_step_6_has_a_list_in_each_tab(reader: Reader, tab: Page) -> None:
    start, front, listed, named = shell(6)
    await tab.close()
    await reader.stop()
    reader.save(6)
    await reader.read(start)
    home = await reader.open("?list=Home")
    party = await reader.open("?list=Party")
    await party.bring_to_front()
    await reader.offers("add_item", "tabs_list")
    await reader.read(front)
    assert await items(party) == ["Balloons"]
    tabs: list[dict[str, Any]] = json.loads(await reader.type(listed.body.strip()))["tabs"]
    [id] = [tab["id"] for tab in tabs if tab["title"] == "Home"]
    assert await reader.type(named.body.strip().replace("HOME", id)) == named.output
    await expect(home.locator("li")).to_have_text(["Soap"])


async def test_step_7_is_a_test_that_passes(reader: Reader, settings: ModuleType) -> None:
    reader.save(7)
    test = reader.folder / "test_groceries.py"
    options = settings.quick_boot_options()
    test.write_text(test.read_text().replace("chromium.launch()", f"chromium.launch(**{options!r})"))
    said = await reader.type("pytest -q -p no:cacheprovider test_groceries.py")
    assert "3 passed" in said
    workflow = next(block.body for block in blocks(7) if block.language == "yaml")
    assert "run: pytest test_groceries.py" in workflow
