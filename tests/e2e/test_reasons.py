"""Every reason why a page does not serve: one line in its console, with the same text in a panel and in its state.

One relay, one browser profile and one web app for the whole file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.async_api import Browser, BrowserContext, Route, expect

from tabrelay.cli.main import main
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.paths import ROOT
from tests.support.reported_page import PANEL, ReportedPage, visit, write_app

JS = ROOT / "browser_pkg" / "tabserver" / "js"
POLICY = "default-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' RELAY ws:; connect-src 'self' RELAY ws:"


class App:
    """A web app, one relay that accepts its pages, and a second address of the app that sends headers."""

    def __init__(self, relay: Demo, home: Path, site: Site, other: Site, context: BrowserContext) -> None:
        self.relay, self.home, self.site, self.other, self.context = relay, home, site, other, context
        self.address = f"http://127.0.0.1:{relay.port}"

    async def open(self, options: dict[str, Any] | None = None, site: Site | None = None, **asked: str) -> ReportedPage:
        given = {"server": "notes", "worker": "/tabrelay.js", "token": self.relay.token, **(options or {})}
        kept = {name: value for name, value in given.items() if value is not None}
        return await visit(self.context, (site or self.site).origin, kept, **asked)


@pytest.fixture(scope="module")
async def app(browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    with ExitStack() as stack:
        site, other = Site(folder), Site(folder)
        for each in (site, other):
            stack.enter_context(each)
        flags = ("--allow-origin", site.origin, "--allow-origin", other.origin)
        home = tmp_path_factory.mktemp("home")
        async with Demo(home, "notes", *flags, verb="serve") as relay:
            address = f"http://127.0.0.1:{relay.port}"
            files = {
                "page.html": "<!doctype html><title>The app's own page for unknown addresses</title>",
                "worker.txt": 'import "RELAY/-/worker.js";\n',
                "refused.js": 'import "http://127.0.0.1:9/-/worker.js";\n',
                "mistyped.js": 'import "RELAY/worker.js";\n',
                "invalid.js": "onconnect = (;\n",
                "broken.js": 'import "RELAY/-/worker.js";\nthis is no JavaScript\n',
            }
            write_app(site, address, files)
            (folder / "unreached.js").write_text(
                'export const RELAY = "http://127.0.0.1:9";\nonconnect = () => {};\n', encoding="utf-8"
            )
            context = await browser.new_context()
            context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
            yield App(relay, home, site, other, context)
            await context.close()


async def reports_once(page: ReportedPage, code: str) -> str:
    """The state has this code, the console one line, and the panel the same text. Returns the text."""
    state = await page.code(code)
    assert page.lines == [f"tabrelay: {state['message']}"]
    assert page.codes == [state["help"]]
    shown = " ".join((await page.panel()).split())
    assert " ".join(state["message"].split()) in shown and f"tabrelay help {state['help']}" in shown
    await page.page.close()
    return str(state["message"])


WRONG_OPTIONS: dict[str, dict[str, Any]] = {
    "server_invalid": {"server": "two words"},
    "worker_option_missing": {"worker": None},
    "worker_other_origin": {"worker": "http://127.0.0.1:1/tabrelay.js"},
}


@pytest.mark.parametrize("code", WRONG_OPTIONS)
async def test_a_wrong_option_is_reported_before_anything_starts(app: App, code: str) -> None:
    message = await reports_once(await app.open(WRONG_OPTIONS[code]), code)
    named = {"server_invalid": '"two words"', "worker_option_missing": f"curl -O {app.address}/-/tabrelay.js"}
    assert named.get(code, "127.0.0.1:1") in message


async def test_a_reserved_name_of_a_server_is_reported_with_the_reason(app: App) -> None:
    message = await reports_once(await app.open({"server": "sse", "token": None}), "server_invalid")
    assert (
        message == "Server name 'sse' is reserved: browsers or MCP clients request it by themselves. Use another name."
    )


WRONG_FILES = {
    "/nowhere.js": ("worker_missing", "answered 404"),
    "/page.html": ("worker_is_html", "HTML page"),
    "/worker.txt": ("worker_type", "text/plain"),
    "/unreached.js": ("relay_mismatch", "the relay at http://127.0.0.1:9,"),
    "/refused.js": ("relay_mismatch", "the relay at http://127.0.0.1:9,"),
    "/mistyped.js": ("worker_import", "does not start the relay's worker: it imports http"),
    "/invalid.js": ("worker_import", "it imports nothing, or is not valid JavaScript. "),
    "/broken.js": ("worker_failed", "did not start"),
}


@pytest.mark.parametrize("file", WRONG_FILES)
async def test_a_wrong_worker_file_is_reported_with_what_is_wrong_with_it(app: App, file: str) -> None:
    code, told = WRONG_FILES[file]
    message = await reports_once(await app.open({"worker": file}), code)
    assert f"{app.site.origin}{file}" in message and told in message
    assert code == "worker_type" or f"curl -O {app.address}/-/tabrelay.js" in message


async def test_options_that_leave_no_connection_are_thrown_logged_and_shown(app: App) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"server": None}, "server"),
        ({"relay": "ftp://relay"}, '"ftp://relay"'),
        ({"relay": "127.0.0.1:4747"}, '"127.0.0.1:4747"'),
    ]
    for options, told in wrong:
        page = await app.open(options)
        thrown = await page.page.wait_for_function("globalThis.thrown")
        message = str(await thrown.json_value()).removeprefix("TypeError: ")
        assert page.lines == [f"tabrelay: {message}"] and told in message
        assert message.split(". ")[0] in await page.panel()
        await page.page.close()


async def test_an_unknown_option_is_named_with_the_one_that_was_probably_meant(app: App) -> None:
    page = await app.open({"wroker": "/tabrelay.js", "timing": {"conect_ms": 1}, "modules": "/none.py", "xyz": 1})
    await page.panel()
    assert page.lines[:4] == [
        'tabrelay: connect() does not know the option "wroker". Did you mean "worker"?',
        next(line for line in page.lines if '"xyz"' in line),
        'tabrelay: connect() does not know the option "timing.conect_ms". Did you mean "timing.connect_ms"?',
        'tabrelay: The option "modules" of connect() is the text "/none.py". '
        'Pass a list of addresses: modules: ["tools.py"].',
    ]
    assert "It knows: server, relay" in page.lines[1]
    await page.page.close()


async def test_an_option_of_another_type_is_named_with_what_to_pass(app: App) -> None:
    given = {"worker": 42, "modules": [1], "packages": "numpy", "panel": "no", "dev": 1, "token": ["tr_secret"]}
    given |= {"mode": "both", "approve": "some", "instance": "a b"}
    page = await app.open(given)
    await page.panel()
    told = [
        ("token", "a list with other values", "Pass the text of a token"),
        ("worker", "a number", "Pass the address of the relay's loader"),
        ("modules", "a list with other values", "Pass a list of addresses"),
        ("packages", 'the text "numpy"', "Pass a list of names"),
        ("panel", 'the text "no"', "Pass true or false."),
        ("dev", "a number", "Pass true or false."),
        ("mode", 'the text "both"', 'Pass "shared" or "elected".'),
        ("approve", 'the text "some"', 'Pass "destructive", "all", "none" or a list of tools.'),
        ("instance", 'the text "a b"', "Use at most 32 "),
    ]
    assert len(page.lines) >= len(told)
    for line, (option, value, advice) in zip(page.lines, told, strict=False):
        assert line.startswith(f'tabrelay: The option "{option}" of connect() is {value}. {advice}')
    await page.page.close()


async def test_a_relay_that_is_not_running_is_reported_and_distinguished_from_another_program(app: App) -> None:
    message = await reports_once(await app.open({"relay": "http://127.0.0.1:9"}), "relay_down")
    assert message.startswith("No relay answers at http://127.0.0.1:9. Start it with: tabrelay serve")
    await reports_once(await app.open({"relay": app.other.origin}), "not_a_relay")


async def test_a_page_without_storage_reports_what_pairing_needs(app: App) -> None:
    page = await app.context.new_page()
    await page.add_init_script(
        """Object.defineProperty(globalThis, "localStorage", {
            get() { throw new DOMException("The operation is insecure.", "SecurityError"); },
        })"""
    )
    reported = ReportedPage(page)
    await page.goto(f'{app.site.origin}/?options={{"server":"notes","worker":"/tabrelay.js"}}')
    await reports_once(reported, "storage_blocked")


async def test_a_browser_without_web_locks_is_reported(app: App) -> None:
    await reports_once(await app.open(without="BroadcastChannel"), "unsupported")


async def test_a_content_security_policy_that_blocks_the_relay_or_the_worker_is_named(app: App) -> None:
    policy = POLICY.replace("RELAY", app.address)
    app.other.headers["Content-Security-Policy"] = policy.replace(
        f"connect-src 'self' {app.address}", "connect-src 'self'"
    )
    message = await reports_once(await app.open(site=app.other), "policy_blocks_relay")
    assert "(connect-src)" in message and app.address in message
    # Each address is different, because the browser caches a loaded page with its headers.
    app.other.headers["Content-Security-Policy"] = f"{policy}; worker-src 'none'"
    assert "(worker-src)" in await reports_once(await app.open(site=app.other, visit="2"), "policy_blocks_worker")
    # The worker's policy is that of its own file.
    app.other.headers["Content-Security-Policy"] = policy.replace("'wasm-unsafe-eval'", "'self'")
    assert "wasm-unsafe-eval" in await reports_once(await app.open(site=app.other, visit="3"), "wasm_blocked")
    del app.other.headers["Content-Security-Policy"]


async def inline(app: App, url: str, options: dict[str, Any]) -> ReportedPage:
    """The page at another address, which the test itself serves to the browser."""
    html = (app.site.folder / "index.html").read_text(encoding="utf-8")

    async def answer(route: Route) -> None:
        await route.fulfill(body=html, content_type="text/html")

    page = await app.context.new_page()
    reported = ReportedPage(page)
    await page.route(f"{url}**", answer)
    await page.goto(f"{url}?{urlencode({'options': json.dumps(options)})}")
    return reported


@pytest.fixture(scope="module")
def bundle(app: App) -> str:
    """The address of the client in a folder of the app, as a bundle has it."""
    (app.site.folder / "lib").symlink_to(JS, target_is_directory=True)
    return "/lib/client.js"


async def test_a_copy_of_the_client_that_gets_no_address_of_a_relay_is_reported(app: App, bundle: str) -> None:
    page = await app.open(client=bundle)
    thrown = await page.page.wait_for_function("globalThis.thrown")
    message = str(await thrown.json_value()).removeprefix("TypeError: ")
    assert page.lines == [f"tabrelay: {message}"] and message.startswith("This app has its own copy of client.js")
    assert 'connect({ server, relay: "http://127.0.0.1:4747" })' in await page.panel()
    await page.page.close()


async def test_a_worker_file_whose_own_policy_blocks_the_relay_is_reported(app: App, bundle: str) -> None:
    connects = f"connect-src 'self' {app.address} ws:"
    app.other.headers["Content-Security-Policy"] = f"script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; {connects}"
    # Another address than that of the workers of other tests, which may still run.
    (app.site.folder / "with-policy.js").symlink_to("tabrelay.js")
    try:
        page = await app.open({"relay": app.address, "worker": "/with-policy.js"}, app.other, client=bundle)
        message = await reports_once(page, "worker_policy")
    finally:
        del app.other.headers["Content-Security-Policy"]
    assert f"{app.other.origin}/with-policy.js (script-src)" in message
    assert f"script-src 'self' 'wasm-unsafe-eval' {app.address}; connect-src 'self' {app.address}" in message


async def test_a_worker_file_that_leads_to_another_site_is_reported(app: App) -> None:
    app.site.redirects["/moved.js"] = f"{app.other.origin}/tabrelay.js"
    message = await reports_once(await app.open({"worker": "/moved.js"}), "worker_unreachable")
    assert f"{app.site.origin}/moved.js" in message and "without a redirect" in message


async def test_a_page_of_an_http_address_that_is_not_this_computers_is_reported(app: App) -> None:
    # The address that `python3 -m http.server` prints. Its pages are of this computer, but not a secure context.
    url = app.site.origin.replace("localhost", "0.0.0.0")
    page = await visit(app.context, url, {"server": "notes", "worker": "/tabrelay.js"})
    message = await reports_once(page, "insecure_page")
    assert url in message and f"open it on the computer that serves it: {app.site.origin}" in message


async def test_an_access_token_is_not_sent_to_a_relay_of_http(app: App) -> None:
    message = await reports_once(await app.open({"token": "eyJ.e30.e30"}), "token_needs_https")
    assert "tabrelay token new" in message


async def test_a_pairing_that_is_not_approved_in_time_is_asked_for_again_by_the_panel(app: App) -> None:
    with Site(app.site.folder) as site:
        page = await app.context.new_page()
        reported = ReportedPage(page)

        async def expire(route: Route) -> None:  # 120 s later
            text = "The request was not answered in time. Ask again."
            headers = {"Access-Control-Allow-Origin": site.origin}
            await route.fulfill(status=410, json={"error": "expired", "message": text}, headers=headers)

        await page.route("**/-/ask/answer", expire, times=1)
        options = json.dumps({"server": "notes", "worker": "/tabrelay.js"})
        await page.goto(f"{site.origin}/?{urlencode({'options': options})}")
        state = await reported.code("pairing_expired")
        assert f"The request of {site.origin}" in state["message"]
        assert reported.lines[-1] == f"tabrelay: {state['message']}"
        await page.get_by_role("button", name="Ask again").click()
        code = await page.locator(f"{PANEL} .pairing-code").inner_text()
        assert len(reported.lines) == 3 and code in reported.lines[-1]
        await page.close()


async def test_a_page_that_was_opened_as_a_file_reports_that_it_must_be_served(app: App) -> None:
    page = await app.context.new_page()
    reported = ReportedPage(page)
    options = urlencode({"options": json.dumps({"server": "notes"})})
    await page.goto(f"{(app.site.folder / 'index.html').as_uri()}?{options}")
    assert "http.server" in await reports_once(reported, "file_page")


async def test_a_page_of_https_reports_that_it_can_not_reach_a_relay_of_http(app: App) -> None:
    await app.context.grant_permissions(["local-network-access"], origin="https://app.example")
    options = {"server": "notes", "relay": "http://relay.example:4747", "worker": "/w.js", "token": "x", "panel": True}
    assert "http://relay.example:4747" in await reports_once(
        await inline(app, "https://app.example/", options), "mixed_content"
    )


async def test_a_page_in_a_sandboxed_frame_gets_the_reason_why_it_has_no_worker(app: App) -> None:
    page = await app.context.new_page()
    reported = ReportedPage(page)
    source = f"{app.site.origin}/?{urlencode({'options': json.dumps({'server': 'notes', 'worker': '/tabrelay.js'})})}"
    await page.goto(f"{app.site.origin}/page.html")
    await page.evaluate(
        """(source) => {
            const frame = document.createElement("iframe");
            frame.sandbox = "allow-scripts";
            frame.src = source;
            document.body.append(frame);
        }""",
        source,
    )
    assert "allow-same-origin" in await reported.line("sandboxed frame")
    await page.close()


async def test_a_refused_pairing_is_asked_for_again_by_the_panel(app: App) -> None:
    # A separate site, which the relay's options do not admit.
    with Site(app.site.folder) as site:
        page = await app.open({"token": None}, site)
        code = await page.page.locator(f"{PANEL} .pairing-code").inner_text()
        assert await asyncio.to_thread(main, ["pairs", "refuse", code, "--home", str(app.home)]) == 0
        state = await page.code("pairing_refused")
        assert f"The request of {site.origin}" in state["message"]
        assert f"tabrelay: {state['message']}" in page.lines
        await page.page.get_by_role("button", name="Ask again").click()
        again = page.page.locator(f"{PANEL} .pairing-code")
        await expect(again).not_to_have_text(code)
        assert len([line for line in page.lines if "waits for your approval" in line]) == 2
        await page.page.close()


async def test_a_name_that_another_browser_takes_is_reported_and_taken_back(app: App, rival: BrowserContext) -> None:
    page = await app.open()
    await page.page.wait_for_function("globalThis.connection?.state.state === 'connected'")
    options = {"server": "notes", "worker": "/tabrelay.js", "token": app.relay.token}
    other = await visit(rival, app.site.origin, options)
    await other.page.wait_for_function("globalThis.connection?.state.state === 'connected'")
    state = await page.code("replaced")
    assert page.lines == [f"tabrelay: {state['message']}"]
    await page.page.get_by_role("button", name="Try again").click()
    await page.page.wait_for_function("globalThis.connection?.state.state === 'connected'")
    await expect(page.page.locator(PANEL)).to_have_count(0)
    await other.code("replaced")
    await page.page.close()


async def test_a_worker_that_sends_nothing_is_reported(app: App) -> None:
    (app.site.folder / "silent.js").write_text("onconnect = () => {}; // imports nothing\n", encoding="utf-8")
    page = await app.context.new_page()
    reported = ReportedPage(page)
    await page.clock.install()
    options = {"server": "notes", "worker": "/silent.js", "token": app.relay.token, "mode": "shared"}
    await page.goto(f"{app.site.origin}/?{urlencode({'options': json.dumps(options)})}")
    await page.wait_for_function("globalThis.connection?.state.message === 'Starting the worker'")
    await page.clock.fast_forward(25_000)
    state = await reported.code("worker_silent")
    assert reported.lines == [f"tabrelay: {state['message']}"]
    await page.close()


async def test_a_download_of_python_that_fails_is_reported(app: App) -> None:
    page = await app.context.new_page()
    reported = ReportedPage(page)
    await page.route("**/-/manifest.json", lambda route: route.abort())
    options = {"server": "download", "worker": "/tabrelay.js", "token": app.relay.token, "mode": "elected"}
    await page.goto(f"{app.site.origin}/?{urlencode({'options': json.dumps(options)})}")
    assert "Python could not be downloaded" in await reports_once(reported, "python_download")


async def test_a_panel_is_hidden_tries_again_and_disappears_when_the_page_serves(app: App) -> None:
    (app.site.folder / "late.js").unlink(missing_ok=True)
    page = await app.open({"worker": "/late.js"})
    await page.code("worker_missing")
    panel = page.page.locator(PANEL)
    await expect(panel).to_have_attribute("role", "alert")
    (app.site.folder / "late.js").write_text(f'import "{app.address}/-/worker.js";\n', encoding="utf-8")
    await panel.get_by_role("button", name="Try again").focus()
    await page.page.keyboard.press("Enter")
    await page.page.wait_for_function("globalThis.connection?.state.state === 'connected'")
    await expect(panel).to_have_count(0)
    assert len(page.lines) == 1
    await page.page.close()


async def test_an_app_that_shows_the_state_itself_gets_no_panel(app: App) -> None:
    for options in ({"panel": False}, {"panel": True}):
        asked = {"listens": "1"} if options["panel"] else {}
        page = await app.open({"worker": "/nowhere.js", **options}, None, **asked)
        await page.code("worker_missing")
        # Longer than the panel's delay, by the page's own clock.
        await page.page.evaluate("() => new Promise((resolve) => setTimeout(resolve, 1_000))")
        assert await page.page.locator(PANEL).count() == 0 and len(page.lines) == 1
        await page.page.close()


async def test_a_listener_that_comes_later_removes_the_panel(app: App) -> None:
    page = await app.open({"worker": "/nowhere.js"})
    await page.panel()
    await page.page.evaluate("() => connection.addEventListener('state', () => {})")
    await expect(page.page.locator(PANEL)).to_have_count(0)
    await page.page.close()


async def test_an_unknown_token_and_another_relays_worker_are_reported(app: App, tmp_path: Path) -> None:
    page = await app.open({"token": "wrong"})
    message = await reports_once(page, "unauthorized")
    assert "does not know this page" in message
    async with Demo(tmp_path / "second", "notes", "--allow-origin", app.site.origin, verb="serve") as second:
        there = f"http://127.0.0.1:{second.port}"
        (app.site.folder / "second.js").write_text(f'import "{there}/-/worker.js";\n', encoding="utf-8")
        message = await reports_once(await app.open({"worker": "/second.js"}), "relay_mismatch")
        assert there in message and app.address in message
