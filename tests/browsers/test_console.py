"""The console in every browser: a call of an official client as a row, its detail, a filter, and a session file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser_engines import Engine, Tab, until
from tests.support.console_page import Notes, client_of
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

# Errors of the page, and the files that it exports. Not every driver reports a download of a page's own blob.
LISTEN = """() => {
  globalThis.failures = [];
  addEventListener("error", ({ message }) => failures.push(message));
  addEventListener("unhandledrejection", ({ reason }) => failures.push(String(reason)));
  globalThis.saved = [];
  const real = URL.createObjectURL.bind(URL);
  const blobs = new Map();
  URL.createObjectURL = (blob) => {
    const url = real(blob);
    blobs.set(url, blob);
    return url;
  };
  HTMLAnchorElement.prototype.click = async function () {
    saved.push({ name: this.download, text: await blobs.get(this.href).text() });
  };
}"""
FILTER = """(text) => {
  const field = document.querySelector("[data-testid=filter]");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}"""
CLICK = "(selector) => document.querySelector(selector).click()"
OPEN_FILE = """({ name, text }) => {
  globalThis.fetch = () => Promise.reject(new TypeError("there is no relay"));
  const chosen = new DataTransfer();
  chosen.items.add(new File([text], name, { type: "application/json" }));
  const field = document.querySelector("[data-testid=session-file]");
  field.files = chosen.files;
  field.dispatchEvent(new Event("change", { bubbles: true }));
}"""
ROWS = "#calls-list .rows [data-call]"
RESULT = "document.querySelector('[data-testid=drawer] [data-part=result] .content-text')?.textContent"


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with RunningRelay(tmp_path) as relay, CPythonWorker(relay.url, relay.token, "notes", Notes().box):
        await relay.has_read("notes")
        yield relay


async def open_console(relay: RunningRelay, browser: Engine) -> Tab:
    """The console, paired and live."""
    fragment = (await relay.http.post("/-/codes")).json()["url"].partition("#")[2]
    tab = await browser.open(f"{relay.url}/#{fragment}")
    await until(tab, "document.querySelector('#feed[data-feed=live]')", BOUND_S)
    await tab.run(LISTEN)
    return tab


async def shows(tab: Tab, filter: str, *names: str) -> None:
    """The list has the calls of these names, the newest first, after this text was written into the filter."""
    await tab.run(FILTER, filter)
    found = f"JSON.stringify([...document.querySelectorAll('{ROWS}')].map((row) => row.dataset.call))"
    is_drawn = f"document.querySelector('#calls-list').dataset.filter === {json.dumps(filter)}"
    await until(tab, f"{is_drawn} && {found} === {json.dumps(json.dumps(names, separators=(',', ':')))}", BOUND_S)


async def test_a_call_is_a_row_with_a_detail_that_a_filter_keeps_and_a_session_file_has(
    relay: RunningRelay, browser: Engine, tabs: list[Tab]
) -> None:
    tab = await open_console(relay, browser)
    tabs.append(tab)
    async with client_of(relay, "tester") as client:
        await client.call_tool("echo", {"text": "shown"})
        assert (await client.call_tool("broken", {})).is_error
    await shows(tab, "client:tester method:tools/call", "broken", "echo")
    states = f"[...document.querySelectorAll('{ROWS}')].map((row) => row.dataset.state).join()"
    await until(tab, f"{states} === 'failed,done'", BOUND_S)
    await shows(tab, "client:tester status:error", "broken")
    await shows(tab, "client:tester tool:echo", "echo")
    await tab.run(CLICK, "[data-call=echo]")
    await until(tab, f"{RESULT} === 'shown'", BOUND_S)
    # The file has what the filter keeps.
    await tab.run(CLICK, "[data-export=session]")
    await until(tab, "saved.length === 1", BOUND_S)
    [file] = await tab.run("() => saved")
    exported: dict[str, Any] = json.loads(file["text"])
    assert file["name"].endswith(".session.json") and relay.token not in file["text"]
    assert [detail["row"]["name"] for detail in exported["calls"]] == ["echo"]
    # It opens while nothing answers, and its rows are the only ones.
    await tab.run(FILTER, "")
    await tab.run(OPEN_FILE, {**file, "text": file["text"].replace('"shown"', '"from the file"')})
    await until(tab, "document.querySelector('[data-testid=session]').textContent.includes('1 calls of')", BOUND_S)
    await shows(tab, "", "echo")
    await tab.run(CLICK, "[data-call=echo]")
    await until(tab, f"{RESULT} === 'from the file'", BOUND_S)
    assert await tab.run("() => failures") == []
