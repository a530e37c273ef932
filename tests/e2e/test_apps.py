"""Apps of a page and of the worker, shown in a sandbox by the official AppBridge in Chromium.

One relay, one page that offers and one that shows for the whole file.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from hashlib import sha256
from types import ModuleType
from typing import Any

import pytest
from mcp_types import TextResourceContents
from playwright.async_api import Browser, Page, expect

from tests.behaviour.upstreams.test_eras import AnyRequest, AnyResult
from tests.e2e.test_page_api import ERAS, OFFERED, text
from tests.support.demo import Demo
from tests.support.npm_bundle import bundle
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

SERVER = "board"

PAGE = """<!doctype html>
<title>Counter</title>
<output>0</output>
<script type="module">
import * as tabrelay from "RELAY/-/client.js";
const connection = tabrelay.connect({
  server: "board", worker: "/worker.js", token: "TOKEN", modules: [new URL("/apps.py", location.href).href],
});
const output = document.querySelector("output");
const set = (value) => {
  output.value = String(value);
  connection.resourceUpdated("counter://value");
};
const VIEW = `<!doctype html><html><head><style>body { margin: 0 }</style></head><body>
<output></output><button>Add</button>
<script>
(async () => {
  const view = await tabrelay.connect();
  document.body.dataset.ready = "yes";
  view.live("counter://value", ({ value }) => (document.querySelector("output").value = value));
  document.querySelector("button").onclick = () => view.callTool("counter_add", { by: 5 });
})();
<\\/script></body></html>`;
connection.offerResource({
  uri: "counter://value", mimeType: "application/json", read: () => ({ value: Number(output.value) }),
});
connection.offerTool({
  name: "counter_add", description: "Add to the counter.", visibility: ["app"],
  inputSchema: { type: "object", properties: { by: { type: "integer" } }, required: ["by"] },
  execute: ({ by }) => set(Number(output.value) + by),
});
connection.offerApp({
  name: "counter", title: "Counter", description: "Show the counter.", html: () => VIEW, live: ["counter://value"],
  permissions: ["clipboardWrite"], csp: { connectDomains: ["https://api.example"] }, prefersBorder: true,
});
const tool = { execute: () => "42 rows" };
connection.offerApp({ name: "chart", description: "Show a chart.", url: "/chart.html", tool });
Object.assign(globalThis, { connection, set });
</script>
"""
CHART = """<!doctype html><html><head><title>Chart</title></head><body><p>empty</p>
<script src="chart.js"></script></body></html>"""
CHART_SCRIPT = """tabrelay.connect().then((view) => view.addEventListener("result", ({ detail }) => {
  document.querySelector("p").textContent = detail.content[0].text;
}));
"""
MODULE = '''
from tabserver import app, resource, resource_updated, tool

state = {"light": "red"}
VIEW = """<!doctype html><p></p><button>Next</button><script>
tabrelay.connect().then((view) => {
  view.live("light://now", (light) => (document.querySelector("p").textContent = light));
  document.querySelector("button").onclick = () => view.callTool("switch_light", { to: "green" });
});
</script>"""


@resource("light://now")
def now() -> str:
    return state["light"]


@tool(visibility=["app"])
def switch_light(to: str) -> None:
    """Switch the light."""
    state["light"] = to
    resource_updated("light://now")


@app(html=VIEW, live=["light://now"], title="Traffic light")
async def light() -> None:
    """Show the traffic light."""
'''


class Stage:
    """The page that offers, the one that shows, and the relay between them."""

    def __init__(self, relay: Demo, page: Page, host: Page) -> None:
        self.relay, self.page, self.host = relay, page, host

    async def show(self, era: str, *apps: str) -> list[dict[str, Any]]:
        """Show apps in an empty host page. Returns the results of their tools."""
        await self.host.reload()
        url = f"http://127.0.0.1:{self.relay.port}/{SERVER}"
        script = """async ([url, token, era, apps]) => {
            globalThis.client = await connectClient(url, token, era);
            const shown = [];
            for (const name of apps) shown.push(await showApp(client, name));
            return shown;
        }"""
        shown: list[dict[str, Any]] = await self.host.evaluate(script, [url, self.relay.token, era, apps])
        return shown


@pytest.fixture(scope="module")
async def stage(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("site")
    site = Site(folder)
    site.headers["Access-Control-Allow-Origin"] = "*"
    async with Demo(tmp_path_factory.mktemp("home"), SERVER, "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        (folder / "apps.py").write_text(MODULE)
        (folder / "chart.html").write_text(CHART)
        (folder / "chart.js").write_text(CHART_SCRIPT)
        await bundle("app_host.js", folder)
        (folder / "host.html").write_text('<!doctype html><title>Host</title><script src="app_host.js"></script>')
        context = await browser.new_context()
        with site:
            page, host = await context.new_page(), await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(OFFERED, arg="light", timeout=settings.BOOT_TIMEOUT_MS)
            await page.wait_for_function(OFFERED, arg="chart")
            await host.goto(f"{site.origin}/host.html")
            yield Stage(relay, page, host)
        await context.close()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_page_of_an_app_and_its_tab_show_the_same_state(stage: Stage, era: str) -> None:
    [shown] = await stage.show(era, "counter")
    assert shown["size"]["width"] > 0 and shown["size"]["height"] > 0
    view, output = stage.host.frame_locator("#counter"), stage.page.locator("output")
    await stage.page.evaluate("set(10)")
    await expect(view.locator("output")).to_have_text("10")
    await view.locator("button").click()
    await expect(output).to_have_text("15")
    await expect(view.locator("output")).to_have_text("15")
    await stage.page.evaluate("set(3)")
    await expect(view.locator("output")).to_have_text("3")


async def test_a_change_is_shown_on_the_other_side_within_a_second(stage: Stage) -> None:
    """Five times as long is accepted here, so that a busy machine passes. Without a change, a call waits for 20 s."""
    await stage.show("modern", "counter")
    view, output = stage.host.frame_locator("#counter"), stage.page.locator("output")
    for round in range(3):
        await stage.page.evaluate(f"set({round * 100})")
        await expect(view.locator("output")).to_have_text(str(round * 100), timeout=5000)
        await view.locator("button").click()
        await expect(output).to_have_text(str(round * 100 + 5), timeout=5000)


async def test_an_app_of_the_worker_shows_the_state_of_the_worker(stage: Stage) -> None:
    await stage.show("modern", "light")
    view = stage.host.frame_locator("#light")
    await expect(view.locator("p")).to_have_text("red")
    await view.locator("button").click()
    await expect(view.locator("p")).to_have_text("green")


async def test_an_app_with_an_address_uses_scripts_of_its_origin_and_gets_the_result(stage: Stage) -> None:
    await stage.show("legacy", "chart")
    await expect(stage.host.frame_locator("#chart").locator("p")).to_have_text("42 rows")


async def test_the_page_stays_with_the_tab_that_ran_the_tool(stage: Stage) -> None:
    [shown] = await stage.show("modern", "counter")
    await stage.page.evaluate("set(1)")
    other = await stage.page.context.new_page()
    await other.goto(stage.page.url)
    await other.wait_for_function("connection.catalogue?.tabs === 2")
    await other.bring_to_front()
    await other.evaluate("set(1000)")
    view = stage.host.frame_locator("#counter")
    await expect(view.locator("output")).to_have_text("1")
    await view.locator("button").click()
    await expect(stage.page.locator("output")).to_have_text("6")
    await expect(other.locator("output")).to_have_text("1000")
    await other.close()
    assert shown["result"]["_meta"]["tabrelay/tab"]["id"] == await stage.page.evaluate("connection.tab.id")


@ERAS
async def test_clients_without_apps_get_text_and_no_tools_for_apps(stage: Stage, mode: str) -> None:
    async with stage.relay.client(mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"counter", "chart", "light"} <= names
        assert not names & {"counter_add", "counter_watch", "light_watch", "switch_light"}
        said = text(await client.call_tool("counter", {}))
        assert said.startswith("Counter is an app") and "counter://value" in said and stage.page.url in said
        assert "light://now" in text(await client.call_tool("light", {}))
        assert text(await client.call_tool("chart", {})) == "42 rows"
        [content] = (await client.read_resource("ui://counter")).contents
        assert content.mime_type == "text/html;profile=mcp-app"
        assert content.meta is not None and content.meta["ui"] == {
            "csp": {"connectDomains": ["https://api.example"]},
            "permissions": {"clipboardWrite": {}},
            "prefersBorder": True,
        }


async def test_a_page_offers_skills_whose_files_have_the_listed_digests(stage: Stage) -> None:
    script = """() => connection.offerSkill({
        name: "counting", description: "How to count. Use it for counters.", metadata: { license: "MIT" },
        files: {
            "SKILL.md": "# Counting é\\n", "code/chart.js": new URL("/chart.js", location.href),
            "data/it's (1).bin": new Uint8Array([0, 255]),
        },
    })"""
    await stage.page.evaluate(script)
    async with stage.relay.client("auto") as client:

        async def ask(method: str, **params: Any) -> dict[str, Any]:
            return (await client.session.send_request(AnyRequest(method=method, params=params), AnyResult)).model_dump()

        await stage.page.wait_for_function(
            "connection.catalogue?.resources.some(({ uri }) => uri === 'skill://counting/SKILL.md')"
        )
        [skill] = (await ask("skills/list"))["skills"]
        assert skill["frontmatter"] == {
            "name": "counting",
            "description": "How to count. Use it for counters.",
            "license": "MIT",
        }
        assert [file["uri"].removeprefix("skill://counting/") for file in skill["resources"]] == [
            *("SKILL.md", "code/chart.js", "data/it%27s%20(1).bin")
        ]
        for file in skill["resources"]:
            [content] = (await client.read_resource(file["uri"])).contents
            body = content.text.encode() if isinstance(content, TextResourceContents) else b64decode(content.blob)
            assert (len(body), f"sha256:{sha256(body).hexdigest()}") == (file["size"], file["digest"])
        children = (await ask("resources/directory/read", uri="skill://counting/code"))["resources"]
        assert [child["name"] for child in children] == ["chart.js"]


async def test_a_skill_that_clients_would_refuse_is_refused(stage: Stage) -> None:
    script = """(files) => connection.offerSkill({ name: "wrong", description: "d", files }).then(() => "", String)"""
    for files, problem in (
        ({}, "needs a file SKILL.md"),
        ({"SKILL.md": "", "../x": ""}, "no path of a file"),
        ({"SKILL.md": "", "..\\x": ""}, "no path of a file"),
        ({"SKILL.md": 5}, "must be a text"),
    ):
        assert problem in await stage.page.evaluate(script, files)
    refused = await stage.page.evaluate(
        """() => new Promise((resolve) => {
            connection.addEventListener("refused", ({ detail }) => resolve(detail.message), { once: true });
            const files = { "SKILL.md": "---\\nname: other\\ndescription: d\\n---\\n" };
            connection.offerSkill({ name: "wrong", description: "d", files });
        })"""
    )
    assert "The frontmatter has the name 'other'" in refused


async def test_the_extension_is_declared_in_both_eras_also_while_the_browser_is_away(stage: Stage) -> None:
    declared = []
    for is_away in (False, True):
        if is_away:
            await stage.page.evaluate("connection.stop()")
            await stage.page.wait_for_function("connection.state.state === 'stopped'", timeout=BOUND_S * 1000)
        for era in ("modern", "legacy"):
            script = """async ([url, token, era, hasApps]) => {
                const client = await connectClient(url, token, era, hasApps);
                const names = (await client.listTools()).tools.map((tool) => tool.name);
                return [client.getServerCapabilities().extensions, names];
            }"""
            url = f"http://127.0.0.1:{stage.relay.port}/{SERVER}"
            for has_apps in (True, False):
                extensions, names = await stage.host.evaluate(script, [url, stage.relay.token, era, has_apps])
                declared.append(extensions["io.modelcontextprotocol/ui"])
                assert ("counter_watch" in names) is has_apps, (is_away, era, names)
    assert json.dumps(declared) == json.dumps([{}] * 8)
    await stage.page.evaluate("connection.retry()")
    await stage.page.wait_for_function("connection.state.state === 'connected'", timeout=BOUND_S * 1000)
