"""Hub: the catalogue of all tabs, its changes, and what pages receive of it."""

from __future__ import annotations

from typing import Any

import pytest

from tabserver.handlers.toolbox import tool
from tests.support.hub_harness import HubRig


def test_worker_tools_come_first_and_tab_tools_follow_by_name(rig: HubRig) -> None:
    rig.tab("a", "zoom", "ask")

    @tool(toolbox=rig.toolbox)
    def zebra() -> str:
        return ""

    assert rig.names() == ["zebra", "ask", "zoom"]


def test_a_name_offered_by_two_tabs_is_listed_once(rig: HubRig) -> None:
    rig.tab("a", "info")
    rig.tab("b", "info")
    assert rig.names() == ["info"]


def test_withdrawn_tools_vanish(rig: HubRig) -> None:
    port = rig.tab("a", "info", "draw")
    rig.hub.receive(port, {"t": "withdraw", "tools": ["info", "never-offered"]})
    assert rig.names() == ["draw"]


def test_the_tools_of_a_tab_that_left_vanish_and_the_others_stay(rig: HubRig) -> None:
    port = rig.tab("a", "info", "draw")
    rig.tab("b", "info")
    rig.hub.detach(port)
    assert rig.names() == ["info"]


def test_an_offer_replaces_the_one_of_the_same_name(rig: HubRig) -> None:
    port = rig.tab("a", "info", description="old")
    rig.hub.receive(port, {"t": "offer", "tools": [{"name": "info", "description": "new"}]})
    assert [tool["description"] for tool in rig.hub.tools()] == ["new"]


def test_a_tool_without_input_schema_takes_any_object(rig: HubRig) -> None:
    rig.tab("a", "info")
    assert rig.hub.tools() == [{"name": "info", "inputSchema": {"type": "object"}}]


@pytest.mark.parametrize(
    "offered",
    [{"name": "no spaces"}, {"name": ""}, {}, "info", {"name": "x", "inputSchema": {"type": "array"}}],
)
def test_a_bad_offer_is_refused_with_a_reason_and_the_good_one_beside_it_stays(rig: HubRig, offered: Any) -> None:
    port = rig.tab("a")
    rig.hub.receive(port, {"t": "offer", "tools": [offered, {"name": "fine"}]})
    assert rig.names() == ["fine"]
    assert port.last("refused")["message"]


def test_changes_that_come_together_are_published_once(rig: HubRig) -> None:
    port = rig.tab("a", "one", "two")
    rig.hub.receive(port, {"t": "offer", "tools": [{"name": "three"}]})
    assert len(rig.due) == 1
    before = len(port.of("catalogue"))
    rig.settle()
    assert rig.changes == 1
    assert len(port.of("catalogue")) == before + 1


def test_a_change_that_changes_no_tool_is_not_published_to_callers(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.settle()
    rig.hub.receive(port, {"t": "tab", "title": "Renamed", "url": "", "visible": True})
    rig.settle()
    assert rig.changes == 1
    assert port.last("catalogue")["tools"][0]["tab"]["title"] == "Renamed"


def test_a_new_tab_receives_at_once_what_is_offered_and_by_whom(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    rig.tab("a", "info")
    newcomer = rig.tab("b")
    assert newcomer.last("catalogue")["tools"] == [
        {"name": "add", "description": "Add two numbers.", "owner": "worker"},
        {"name": "info", "owner": "a", "tab": {"id": "a", "title": "Tab a", "url": "http://localhost/a"}},
    ]


def test_a_worker_tool_that_is_declared_later_is_published_too(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def late() -> str:
        return ""

    rig.settle()
    assert rig.changes == 1


def test_the_relay_gets_the_address_of_a_tab_without_query_and_fragment(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.hub.receive(port, {"t": "tab", "title": "A", "url": "https://app.example/a?token=x#y", "visible": True})
    assert rig.hub.census()["tabs"][0]["url"] == "https://app.example/a"
    rig.hub.receive(port, {"t": "tab", "title": "A", "url": "https://app.example/" + "a" * 500, "visible": True})
    assert "url" not in rig.hub.census()["tabs"][0]


def test_a_page_that_attaches_again_keeps_its_tools(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.hub.attach(port, {"id": "a", "title": "Tab a", "url": "", "visible": True})
    assert rig.names() == ["info"]
    assert len(rig.hub.tabs) == 1


def test_a_page_that_connects_a_second_time_takes_the_place_of_its_first_port(rig: HubRig) -> None:
    first, second = rig.tab("a", "info"), rig.tab("a", "info")
    assert [tab.port for tab in rig.hub.tabs] == [second]
    rig.call("info")
    assert second.of("call") and not first.of("call")


def test_messages_of_a_page_that_left_are_dropped(rig: HubRig) -> None:
    port = rig.tab("a")
    rig.hub.detach(port)
    rig.hub.receive(port, {"t": "offer", "tools": [{"name": "ghost"}]})
    rig.hub.detach(port)
    assert rig.names() == []
