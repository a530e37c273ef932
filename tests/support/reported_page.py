"""A web app whose page passes any options to `connect`, with its reports: console lines, state, panel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.async_api import BrowserContext, ConsoleMessage, Page

from tests.support.other_origin import Site
from tests.support.waiting import until

PANEL = "tabrelay-panel section"
PAGE = """<!doctype html>
<title>App</title>
<h1>An app of its own</h1>
<script>
const asked = new URLSearchParams(location.search);
for (const name of asked.getAll("without")) Object.defineProperty(globalThis, name, { value: undefined });
</script>
<script type="module">
const asked = new URLSearchParams(location.search);
globalThis.tabrelay = await import(asked.get("client") ?? "RELAY/-/client.js");
const options = JSON.parse(asked.get("options"));
try {
  globalThis.connection = tabrelay.connect(options);
  if (asked.has("listens")) connection.addEventListener("state", () => {});
} catch (error) {
  globalThis.thrown = `${error.name}: ${error.message}`;
}
globalThis.ownCodeRan = true;
</script>
"""


CODE = re.compile(r" \[(TR\d{3})\]$")


class ReportedPage:
    """One page, and its console lines that begin with `tabrelay:`. The codes at their ends are in `codes`."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.lines: list[str] = []
        self.codes: list[str] = []
        self.levels: list[str] = []
        page.on("console", self._receive)

    def _receive(self, message: ConsoleMessage) -> None:
        if message.text.startswith("tabrelay: "):
            found = CODE.search(message.text)
            self.lines.append(CODE.sub("", message.text))
            self.codes += [found[1]] if found else []
            self.levels.append(message.type)

    async def code(self, code: str) -> dict[str, Any]:
        """The state, once it has this code."""
        state: dict[str, Any] = {}

        # A content security policy may forbid the evaluation in the page that `wait_for_function` uses.
        async def has_code() -> bool:
            nonlocal state
            state = await self.page.evaluate("() => globalThis.connection?.state ?? {}")
            return bool(state.get("code") == code)

        try:
            await until(has_code)
        except TimeoutError as error:
            raise AssertionError(f"expected {code}, got {state}; the console has {self.lines}") from error
        return state

    async def line(self, part: str) -> str:
        """The first line with this text, once there is one."""
        try:
            await until(lambda: any(part in line for line in self.lines))
        except TimeoutError as error:
            raise AssertionError(f"no line with {part!r} in {self.lines}") from error
        return next(line for line in self.lines if part in line)

    async def panel(self) -> str:
        """The text of the panel, once there is one."""
        shown = self.page.locator(PANEL).first
        await shown.wait_for()
        return await shown.inner_text()


def write_app(site: Site, relay: str, files: dict[str, str] | None = None) -> None:
    """Write the page, a loader as the relay serves it, and more files. RELAY in a file becomes the relay's address."""
    loader = Path(__file__).parents[2] / "browser_pkg" / "tabserver" / "js" / "tabrelay.js"
    text = loader.read_text(encoding="utf-8").replace('http://127.0.0.1:4747";', f'{relay}";')
    (site.folder / "tabrelay.js").write_text(text, encoding="utf-8")
    for name, text in {"index.html": PAGE, **(files or {})}.items():
        (site.folder / name).write_text(text.replace("RELAY", relay), encoding="utf-8")


async def visit(context: BrowserContext, origin: str, options: dict[str, Any], **asked: str) -> ReportedPage:
    page = await context.new_page()
    reported = ReportedPage(page)
    await page.goto(f"{origin}/?{urlencode({'options': json.dumps(options), **asked})}")
    return reported
