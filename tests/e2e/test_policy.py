"""Pages of every kind under the guide's content security policy: nothing of the page or of the client is blocked."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.async_api import BrowserContext

from tests.e2e.test_examples import has
from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.other_origin import Site

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pages.md"
WRITTEN = "127.0.0.1:4747"
OFFER = 'offer(tabrelay.connect, server="app", worker="/worker.js", token="TOKEN")\n'
IMPORTS = "from pyscript.js_modules import tabrelay\nfrom tabserver import tool\nfrom tabserver.page import offer\n"
PYTHON = f'{IMPORTS}\n@tool(params={{"name": str}})\ndef greet(name):\n    return "Hello " + name\n\n{OFFER}'
KINDS = {
    "js": (
        '<script type="module" src="/app.js"></script>',
        """import { connect } from "RELAY/-/client.js";
connect({ server: "app", worker: "/worker.js", token: "TOKEN" })
  .offerTool({ name: "greet", execute: ({ name }) => `Hello ${name}` });
""",
    ),
    "webmcp": (
        '<script src="RELAY/-/webmcp.js" data-server="app" data-worker="/worker.js" data-token="TOKEN"></script>'
        '<script src="/standin.js"></script><script type="module" src="/app.js"></script>',
        """document.modelContext.registerTool(
  { name: "greet", description: "Greet.", inputSchema: '{"type": "object"}', execute: ({ name }) => `Hello ${name}` });
""",
    ),
    # With its own configuration, which is kept.
    "py": (
        '<script type="module" src="RELAY/-/pyscript.js"></script>'
        """<script type="py" src="/app.py" config='{"files": {"/more.py": ""}}'></script>""",
        PYTHON.replace('"Hello "', "more.HELLO").replace(IMPORTS, f"import more\n{IMPORTS}"),
    ),
    "mpy": (
        '<script type="module" src="RELAY/-/pyscript.js"></script><script type="mpy" src="/app.py"></script>',
        PYTHON,
    ),
}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with Site(tmp_path) as site:
        yield site


@pytest.mark.parametrize("kind", KINDS)
async def test_the_policy_of_the_guide_is_enough(
    kind: str, site: Site, context: BrowserContext, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> None:
    [policy] = re.findall(r"^Content-Security-Policy: (.*)$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    home = tmp_path_factory.mktemp("home")
    async with Demo(home, "app", "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        site.headers["Content-Security-Policy"] = policy.replace(WRITTEN, f"127.0.0.1:{relay.port}")
        head, code = (part.replace("RELAY", here).replace("TOKEN", relay.token) for part in KINDS[kind])
        standin = Path(__file__).parents[2] / "web_demo" / "examples" / "webmcp" / "standin.js"
        files = {
            "index.html": f"<!doctype html><title>App</title>{head}",
            "app.js" if kind in ("js", "webmcp") else "app.py": code,
            "worker.js": f'import "{here}/-/worker.js";\n',
            "more.py": 'HELLO = "Hello "\n',
            "standin.js": standin.read_text(encoding="utf-8"),
        }
        for name, written in files.items():
            (site.folder / name).write_text(written, encoding="utf-8")
        page = await context.new_page()
        blocked: list[str] = []
        page.on("console", lambda said: blocked.append(said.text) if "Content Security Policy" in said.text else None)
        await page.goto(site.origin)
        async with relay.client() as client:
            await has(client, "greet")
            assert text(await client.call_tool("greet", {"name": "Alice"})) == "Hello Alice"
        assert blocked == []
