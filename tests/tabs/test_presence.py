"""Presence of tabs: limits of ids, titles, URLs and offers, and tabs that have closed."""

from __future__ import annotations

import re
from typing import Any

from tabserver.handlers.toolbox import Toolbox
from tabserver.tabs.hub import Hub
from tabserver.tabs.presence import MAX_URL, MOST_DEPARTED, MOST_OFFERS, MOST_TABS
from tabserver.wire.control_messages import MAX_TAB_ID
from tabserver.wire.limits import MAX_TITLE
from tests.support.fake_port import FakePort
from tests.support.paths import JS as JS_FOLDER

JS = JS_FOLDER / "client" / "tab_identity.js"


def new_hub() -> Hub:
    return Hub(Toolbox(), now_ms=lambda: 0.0, defer=lambda run: None, later=lambda delay_ms, ring: None)


def attach(hub: Hub, id: str, **info: Any) -> FakePort:
    port = FakePort()
    hub.attach(port, {"id": id, "visible": True, **info})
    return port


def test_a_tab_with_a_long_id_is_refused_with_the_reason() -> None:
    hub = new_hub()
    [refused] = attach(hub, "x" * 1_000_000).of("refused")
    assert (refused["kind"], len(refused["name"])) == ("tab", MAX_TAB_ID)
    assert refused["message"] == "A tab's id has at most 64 characters; this one has 1,000,000."
    assert hub.known_tabs == {}
    assert not attach(hub, "x" * MAX_TAB_ID).of("refused")


def test_a_browser_has_a_bounded_number_of_tabs_and_known_ones_may_return() -> None:
    hub = new_hub()
    ports = [attach(hub, f"t{number}") for number in range(MOST_TABS)]
    [refused] = attach(hub, "one more").of("refused")
    assert "Close one" in refused["message"]
    assert not attach(hub, "t0").of("refused")
    hub.detach(ports[1])
    assert not attach(hub, "one more").of("refused")
    assert len(hub.known_tabs) == MOST_TABS


def test_a_title_and_an_address_are_cut() -> None:
    hub = new_hub()
    attach(hub, "a", title="t" * 1_000_000, url="u" * 1_000_000)
    [tab] = hub.tabs
    assert (len(tab.title), len(tab.url)) == (MAX_TITLE, MAX_URL)


def test_of_tabs_that_are_gone_the_last_are_known_by_name() -> None:
    hub = new_hub()
    for number in range(MOST_DEPARTED + 10):
        hub.detach(attach(hub, f"t{number}", title=f"Tab {number}"))
    departed = hub._presence.departed
    assert (len(departed), next(iter(departed))) == (MOST_DEPARTED, "t10")


def test_javascript_stores_no_longer_id() -> None:
    assert re.findall(r"^const MAX_ID = (\d+);$", JS.read_text(), re.MULTILINE) == [str(MAX_TAB_ID)]


def test_a_page_offers_a_bounded_number_of_a_kind_and_may_offer_those_again() -> None:
    hub = new_hub()
    port = attach(hub, "a")
    tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(MOST_OFFERS + 50)]
    hub.receive(port, {"t": "offer", "tools": tools})
    [refused] = port.of("refused")
    assert refused["message"] == f"A page offers at most {MOST_OFFERS:,} tools."
    [tab] = hub.tabs
    assert len(tab.offers["tools"]) == MOST_OFFERS
    hub.receive(port, {"t": "offer", "tools": tools[:10]})
    assert len(port.of("refused")) == 1
