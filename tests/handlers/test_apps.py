"""Apps from Python functions: their page, their tools, and what a page that follows a resource gets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.apps import app, with_view
from tabserver.handlers.hints import Hints
from tabserver.handlers.resource_changes import MOST_WAITERS, ResourceChanges
from tabserver.handlers.toolbox import Toolbox, resource, resource_updated, tool
from tabserver.schema.shapes import SchemaError
from tabserver.wire.control_messages import RELAY
from tabserver.wire.extensions import APPS
from tests.support.server_harness import MODERN, READY, CoreHarness
from tests.support.waiting import until

SHOWS = {"extensions": {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
HOST = replace(MODERN, capabilities=SHOWS)


class Light:
    """An app with one resource that its page follows."""

    def __init__(self) -> None:
        self.box, self.color = Toolbox(), "red"

        @resource("light://now", toolbox=self.box)
        def now() -> str:
            return self.color

        @app(html="<p>", live=["light://now"], hints=Hints(always_load=True), toolbox=self.box, read_only=True)
        def light() -> None:
            """Show the light."""

        self.core = CoreHarness(self.box)

    def switch(self, color: str) -> None:
        self.color = color
        resource_updated("light://now", toolbox=self.box)

    def names(self, caller: Any) -> set[str]:
        self.core.server.catalogue_changed([])
        result = self.core.modern("tools/list", caller=caller, channel=f"list {caller.capabilities}")["result"]
        return {tool["name"] for tool in result["tools"]}


def test_tools_for_apps_are_listed_for_clients_that_show_apps() -> None:
    light = Light()
    assert light.names(HOST) == {"light", "light_watch"}
    assert light.names(MODERN) == {"light"}
    for caller, listed in (
        (READY, ["light"]),
        (replace(READY, capabilities=SHOWS), ["light", "light_watch"]),
        (replace(READY, principal=RELAY), ["light", "light_watch"]),
    ):
        light.core.open(caller, "s")
        tools = light.core.request("tools/list", channel="s")["result"]["tools"]
        assert [tool["name"] for tool in tools] == listed


def test_the_tool_names_its_page_and_keeps_its_other_options() -> None:
    light = Light()
    [shown, watch] = light.box.tools()
    assert shown["_meta"] == {"anthropic/alwaysLoad": True, "ui": {"resourceUri": "ui://light"}}
    assert shown["annotations"] == {"readOnlyHint": True}
    assert watch["_meta"] == {"ui": {"resourceUri": "ui://light", "visibility": ["app"]}}


async def test_a_page_that_follows_a_resource_gets_it_when_it_differs() -> None:
    light = Light()
    arguments = {"uri": "light://now"}
    call = {"name": "light_watch", "arguments": arguments}
    first = (await light.core.ask("a", "tools/call", call))["structuredContent"]
    assert first["contents"][0]["text"] == "red"
    asked = asyncio.create_task(
        light.core.ask("b", "tools/call", call | {"arguments": arguments | {"version": first["version"]}})
    )
    await until(lambda: bool(light.box.changes._waiting))
    light.switch("green")
    second = (await asked)["structuredContent"]
    assert second["contents"][0]["text"] == "green" and second["version"] != first["version"]
    assert light.box.changes._waiting == {}


async def test_only_resources_of_the_app_can_be_followed() -> None:
    light = Light()
    call = {"name": "light_watch", "arguments": {"uri": "light://other"}}
    assert (await light.core.ask("a", "tools/call", call))["isError"] is True


async def test_the_number_of_pages_that_wait_for_a_change_is_bounded() -> None:
    changes = ResourceChanges()
    held = [changes.next("a://b") for _ in range(MOST_WAITERS + 1)]
    waiters = [one.__enter__() for one in held]
    assert [waiter.done() for waiter in waiters] == [False] * MOST_WAITERS + [True]
    for one in held:
        one.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("html", "before"),
    [
        ("<!doctype html><html><head><title>A</title>", "<!doctype html><html><head>"),
        ("<!DOCTYPE html><p>A</p>", "<!DOCTYPE html>"),
        ("<p>A</p>", ""),
        ('<html lang="en"><body>', '<html lang="en">'),
        ("<!-- <head> -->\n<html><head><title>", "<!-- <head> -->\n<html><head>"),
        ("<html data-x='>'>\n<HEAD data-y=\">\">x", "<html data-x='>'>\n<HEAD data-y=\">\">"),
        ("<script>const a = '<head>'</script>", ""),
        ("<header><p>", ""),
        ("<!-- never ends", ""),
    ],
)
def test_the_script_comes_before_all_others_and_keeps_the_document_type_first(html: str, before: str) -> None:
    made = with_view(html, "a", "a_watch")
    assert made.startswith(f'{before}<script data-app="a" data-watch="a_watch">') and made.endswith(html[len(before) :])


@pytest.mark.parametrize(
    "options",
    [
        {"csp": {"scripts": ["https://a.example"]}},
        {"csp": {"connectDomains": "https://a.example"}},
        {"permissions": ["usb"]},
        {"name": "a b"},
        {"name": "x" * 101},
    ],
)
def test_what_apps_do_not_have_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        app(html="", toolbox=Toolbox(), **options)(lambda: None)


def test_hints_are_the_members_that_clients_read() -> None:
    box = Toolbox()
    every = Hints(search="weather rain", always_load=True, max_result_chars=100_000, requires_user_interaction=True)

    @tool(hints=every, visibility=["model"], meta={"anthropic/alwaysLoad": False, "mine/x": 1}, toolbox=box)
    def forecast() -> None: ...

    assert box.tools()[0]["_meta"] == {
        "anthropic/searchHint": "weather rain",
        "anthropic/alwaysLoad": False,
        "anthropic/maxResultSizeChars": 100_000,
        "anthropic/requiresUserInteraction": True,
        "ui": {"visibility": ["model"]},
        "mine/x": 1,
    }
    tool(toolbox=box)(plain)
    assert "_meta" not in box.tools()[1]


def plain() -> None: ...


@pytest.mark.parametrize(
    "hints",
    [Hints(search=1), Hints(always_load="yes"), Hints(max_result_chars=0), Hints(max_result_chars=True)],  # type: ignore[arg-type]
)
def test_a_hint_of_the_wrong_type_is_refused(hints: Hints) -> None:
    with pytest.raises(SchemaError, match="expected"):
        tool(hints=hints, toolbox=Toolbox())(plain)
